// Signals of the host must not run on threads of the library.
#pragma once

#include <csignal>

namespace attn {

// Blocks every signal in this thread for a scope. Threads that are started in it inherit that.
class QuietSignals {
 public:
  QuietSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~QuietSignals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t previous_;
};

}  // namespace attn

// Caches and processors of this machine, as far as the system shows them.
#pragma once

#include <cstdint>
#include <string>

namespace attn::cpu {

// Sizes in bytes. Where the system says nothing they are those of a common server.
struct MachineCaches {
  int64_t first_level = 32 << 10;    // of data, of a core
  int64_t second_level = 512 << 10;  // a core's share, where cores share it
  int64_t last_level = 32 << 20;     // the whole of the largest
};

// Online processors, whether or not this process may use them: see available_cores.
struct MachineTopology {
  int processors = 1;
  int cores = 1;             // processors that share none of their units
  int threads_per_core = 1;  // the most
  int numa_nodes = 1;
};

// Of this machine; read at the first call, thread-safe.
const MachineCaches& machine_caches();
const MachineTopology& machine_topology();

namespace detail {

// The same below a folder that stands for "/" (tests); empty is "/" itself.
MachineCaches read_caches(const std::string& root);
MachineTopology read_topology(const std::string& root);

}  // namespace detail
}  // namespace attn::cpu

// A client of attn_c.hpp that asks for the tables: wrapper_client MINIMUM_ABI. It prints what it
// got, or the refusal in the wrapper's words; check_forged_tables.py puts libraries in front.
#include <attn_c_host.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const attn_api& api = attn_c::api(static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 0)));
    std::printf("ABI %u.%u, a table of %u bytes\n", api.abi_version >> 16,
                api.abi_version & 0xffffu, api.struct_size);
    return attn_c::host_api().struct_size == sizeof(attn_host_api) ? 0 : 1;
  } catch (const attn_c::VersionMismatch& error) {
    std::printf("refused: %s\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

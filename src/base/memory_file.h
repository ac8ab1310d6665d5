// MemoryFile: an unnamed file in memory, which processes share by its descriptor.
#pragma once

#include "base/fd.h"

namespace weft {

// A file of 0 bytes that only this process has, open for reading and writing, closed on exec. It
// can be sealed. If the kernel supports MFD_NOEXEC_SEAL (Linux 6.3), which vm.memfd_noexec=2
// demands, nobody can execute it. name: for /proc. Invalid, with errno, if the system refuses.
Fd SealableFile(const char* name);
// The same, perhaps without seals: where the system refuses memfd_create (a container's seccomp
// profile), an unnamed file in /dev/shm.
Fd MemoryFile(const char* name);

}  // namespace weft

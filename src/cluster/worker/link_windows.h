// Memory of the windows of links, for the checks of running and of described jobs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::cluster {

// The window of each link if ranks have at most `most` links each: the windows of one rank have at
// most 512 MiB, which RDMA pins, and the windows of `local` ranks on one machine at most 4 GiB.
size_t WindowBytesOf(int most, int local = 1);
// Bytes of the windows of a rank with `links` links, in a job whose ranks have at most `most` links
// each.
uint64_t WindowsBytes(int links, int most, int local = 1);

}  // namespace weft::cluster

// The process's limit of open descriptors, whose soft value is often 1024.
#pragma once

namespace weft::cluster {

// Raises the soft limit to what a job of `ranks` ranks needs: for each rank, a control connection
// and two descriptors of a link. That is also enough for the files of a checkpoint that they wrote.
// (If the system allows fewer, the call that lacks one says so.)
void AllowDescriptors(int ranks);

}  // namespace weft::cluster

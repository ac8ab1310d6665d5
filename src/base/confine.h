// Confines a process that works for another host to its folders (folder_limit.h), for the rest of
// its life. FolderLimit::Check alone looks at the paths that a job names, before the files are
// opened; a folder may hold links that the job did not name, or get them later.
#pragma once

#include <string>

#include "base/folder_limit.h"

namespace weft {

// From now on, File::Open refuses files outside of `limit` and of Weft's cache by what it has
// opened, and the kernel (Landlock, Linux 5.13) refuses this thread and those that it starts to
// create, write, rename or remove others. On a kernel without Landlock, CheckConfined alone looks
// at files to be written. Does nothing without folders. Call it once, before the first job. Errors:
// kIo.
Status Confine(const FolderLimit& limit);

// For a confined process; otherwise they succeed. Thread: any. Errors: kDenied.
// CheckConfined: whether it may write the file or folder `path`, as FolderLimit::Check.
Status CheckConfined(const std::string& path);
// CheckOpened: whether it may use the file that `fd` has open. path: its name, for errors.
Status CheckOpened(int fd, const std::string& path);

}  // namespace weft

// Confines a process that works for another host to its folders (folder_limit.h), for the rest of
// its life. FolderLimit::Check alone looks at the paths that a job names, before the files are
// opened; a folder may hold links that the job did not name, or get them later.
#pragma once

#include <string>

#include "base/folder_limit.h"

namespace weft {

// After this call, File::Open resolves each opened file and refuses it if it is outside of `limit`
// and of Weft's cache. The kernel (Landlock, Linux 5.13) lets this thread and the threads that it
// starts create, write, rename or remove files only there. On a kernel without Landlock, only
// CheckConfined checks files to be written. Does nothing without folders. Call it once, before the
// first job. Errors: kIo.
Status Confine(const FolderLimit& limit);

// CheckConfined and CheckOpened succeed if the process is not confined. Thread: any. Errors:
// kDenied. CheckConfined: whether the process may write the file or folder `path`, as
// FolderLimit::Check.
Status CheckConfined(const std::string& path);
// CheckOpened: whether the process may use the file that `fd` has open. path: the file's name in
// errors.
Status CheckOpened(int fd, const std::string& path);

}  // namespace weft

#include "base/large_file.h"

#include <sys/resource.h>

#include "base/bytes.h"

namespace weft {

std::string LargeFileAdvice() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        return ". This process may write files of at most " + BytesText(limit.rlim_cur) +
               " (ulimit -f): raise the limit";
    }
    return ". The file system takes no file of this size (FAT32: 4 GiB): write to another one";
}

}  // namespace weft

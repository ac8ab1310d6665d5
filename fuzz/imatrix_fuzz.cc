// libFuzzer target: any bytes as an importance matrix, in either format. What is accepted must be
// positive and finite.
//     build-fuzz/fuzz/imatrix_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/imatrix
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "quantize/importance.h"

namespace {

// A file in memory that each input replaces.
class MemoryFile {
  public:
    MemoryFile() : fd_(::memfd_create("imatrix", MFD_CLOEXEC)) {
        if (fd_ < 0) std::abort();
        path_ = "/proc/self/fd/" + std::to_string(fd_);
    }
    const std::string& Write(const uint8_t* data, size_t size) {
        if (::ftruncate(fd_, 0) != 0 ||
            ::pwrite(fd_, data, size, 0) != static_cast<ssize_t>(size)) {
            std::abort();
        }
        return path_;
    }

  private:
    int fd_;
    std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static MemoryFile file;
    const auto importance = weft::quantize::Importance::Read(file.Write(data, size));
    if (!importance.ok()) return 0;
    for (const std::string name : {"blk.0.attn_q.weight", "t", "output.weight"}) {
        const std::vector<float>* values = importance->Find(name);
        if (values == nullptr) continue;
        if (values->empty()) std::abort();
        for (const float value : *values) {
            if (!(value > 0) || !std::isfinite(value)) std::abort();
        }
    }
    return 0;
}

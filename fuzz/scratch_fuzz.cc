// libFuzzer target: any text as the config.json of a folder without weights, from which
// pre-training begins. An accepted file gives a consistent table of tensors, of which any slice can
// be read.
//     build-fuzz/fuzz/scratch_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/scratch
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "model/hyper.h"
#include "model_files/hf/scratch.h"
#include "support/temp_dir.h"

namespace {

using namespace weft;
using namespace weft::model_files;

// The last elements of the last row, alone and behind others.
void CheckTail(const ModelSource& source, const TensorInfo& tensor) {
    const int64_t cols = std::min<int64_t>(tensor.cols, 5);
    std::vector<float> few(static_cast<size_t>(cols)), more = few;
    const auto read = [&](int64_t begin, int64_t count, std::vector<float>& out) {
        out.resize(static_cast<size_t>(count));
        WEFT_CHECK(source
                       .ReadRows(tensor, tensor.rows - 1, 1, begin, count,
                                 std::as_writable_bytes(std::span(out)), nullptr)
                       .ok());
    };
    read(tensor.cols - cols, cols, more);
    read(tensor.cols - 1, 1, few);
    WEFT_CHECK(few[0] == more.back());
    for (const float value : more) WEFT_CHECK(std::isfinite(value));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const test::TempDir folder;
    WEFT_CHECK(WriteFile(folder / "config.json", std::as_bytes(std::span(data, size))).ok());
    WEFT_CHECK(hf::LacksWeights(folder.path()));
    const auto source = hf::OpenScratch(folder.path(), size);
    if (!source.ok()) {
        WEFT_CHECK(!source.error().message.empty());
        return 0;
    }
    uint64_t total = 0;
    std::set<std::string> names;
    for (const TensorInfo& tensor : (*source)->tensors()) {
        WEFT_CHECK(names.insert(tensor.name).second);
        WEFT_CHECK(tensor.rows >= 1 && tensor.cols >= 1);
        WEFT_CHECK(tensor.bytes ==
                   static_cast<uint64_t>(tensor.rows * RowBytes(tensor.dtype, tensor.cols)));
        WEFT_CHECK(tensor.offset == total && total + tensor.bytes > total);
        total += tensor.bytes;
    }
    WEFT_CHECK((*source)->TotalBytes() == total && (*source)->Fingerprint().ok());
    const std::vector<TensorInfo>& tensors = (*source)->tensors();
    for (size_t i = 0; i < std::min<size_t>(tensors.size(), 16); ++i) {
        CheckTail(**source, tensors[i]);
    }
    (void)model::ReadHyper(**source);
    return 0;
}

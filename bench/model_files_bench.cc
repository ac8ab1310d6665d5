// Measures how fast weights load, from a GGUF file (in the page cache) or generated for a synthetic
// model: all of them, the half of a TP rank (columns of some tensors), and the half of a PP rank.
//     build/bench/model_files_bench MODEL [OUT.gguf]
// With OUT.gguf, it also writes MODEL there, so other programs can run a synthetic model.
#include <fmt/format.h>

#include <cstdio>

#include "base/deadline.h"
#include "model_files/gguf_writer.h"
#include "model_files/model_file.h"

namespace {

using weft::model_files::ModelSource;
using weft::model_files::TensorInfo;

enum class Part { kAll, kTensorHalf, kRowHalf };

bool CutByColumns(const TensorInfo& tensor) {
    return tensor.name.find("ffn_down") != std::string::npos ||
           tensor.name.find("attn_output") != std::string::npos;
}

weft::Status Time(const ModelSource& model, Part part, const char* label) {
    std::vector<std::byte> buffer;
    uint64_t bytes_read = 0;
    int64_t spent_ns = 0;
    for (const TensorInfo& tensor : model.tensors()) {
        const int64_t block = weft::Info(tensor.dtype).block_elements;
        int64_t rows = tensor.rows;
        int64_t cols = tensor.cols;
        if (part == Part::kTensorHalf && CutByColumns(tensor)) {
            cols = cols / block / 2 * block;
        } else if (part != Part::kAll) {
            rows = (rows + 1) / 2;
        }
        buffer.assign(static_cast<size_t>(rows * weft::RowBytes(tensor.dtype, cols)), {});
        const int64_t begin = weft::NowNs();
        WEFT_TRY(model.ReadRows(tensor, 0, rows, 0, cols, buffer, &bytes_read));
        spent_ns += weft::NowNs() - begin;
    }
    fmt::print("{:12} {:9.1f} MB {:8.3f} s {:7.2f} GB/s\n", label,
               static_cast<double>(bytes_read) * 1e-6, static_cast<double>(spent_ns) * 1e-9,
               static_cast<double>(bytes_read) / static_cast<double>(spent_ns));
    return {};
}

weft::Status Run(int argc, char** argv) {
    WEFT_ASSIGN(const auto model, weft::model_files::OpenModel(argv[1]));
    WEFT_TRY(Time(*model, Part::kAll, "all"));
    WEFT_TRY(Time(*model, Part::kTensorHalf, "TP half"));
    WEFT_TRY(Time(*model, Part::kRowHalf, "PP half"));
    if (argc > 2) WEFT_TRY(WriteGguf(*model, argv[2]));
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: model_files_bench MODEL [OUT.gguf]\n");
        return 2;
    }
    const weft::Status status = Run(argc, argv);
    if (status.ok()) return 0;
    fmt::print(stderr, "{}\n", status.error().message);
    return 1;
}

#include "train/checkpoint/source.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "model_files/content.h"
#include "train/pieces.h"

namespace weft::train {

Status CheckModel(const model_files::ModelSource& source, const Checkpoint& checkpoint) {
    const std::string& trained = checkpoint.manifest().model;
    if (trained.empty()) {
        Log(LogLevel::kWarning,
            "{} is of an earlier build, which did not keep a hash of all bytes of the model: Weft "
            "cannot check that {} is the model that training began with",
            checkpoint.folder(), source.name());
        return {};
    }
    const std::vector<const model_files::WeightFile*> files = source.Files();
    const bool partial = std::ranges::any_of(files, &model_files::WeightFile::is_partial);
    WEFT_ASSIGN(const std::string fingerprint, source.Fingerprint());
    const std::string& header = checkpoint.manifest().fingerprint;
    if (trained == fingerprint || (partial && header == fingerprint)) {
        if (files.empty()) return {};  // random weights
        Log(LogLevel::kWarning,
            "{}: Weft compares the metadata and shapes of {} only, because 'weft pull --shard' "
            "downloaded a part of the files {}",
            checkpoint.folder(), source.name(),
            trained == fingerprint ? "with which the checkpoint was trained" : "here");
        return {};
    }
    WEFT_ASSIGN(const std::string identity, model_files::ReadIdentity(source));
    if (trained == identity) return {};
    return MakeError(ErrorCode::kDenied,
                     "{}: was trained from another model than {}, or from another adapter of "
                     "--lora-from. Use the model and the adapter that training began with",
                     checkpoint.folder(), source.name());
}

Result<CheckpointSource> CheckpointSource::Make(const model_files::ModelSource& source,
                                                const Checkpoint& checkpoint) {
    CheckpointSource made(source, checkpoint);
    for (size_t i = 0; i < made.tensors().size(); ++i) {
        const model_files::TensorInfo& tensor = made.tensors()[i];
        const Array* array = checkpoint.Find(kWeightKind, tensor.name);
        if (array == nullptr) continue;
        if (const Array expected = ArrayOf(tensor, kWeightKind); !(*array == expected)) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: {} is {} x {} of {} there; expected {} x {} "
                             "of F32",
                             checkpoint.folder(), array->Name(), array->rows, array->cols,
                             model_files::hf::SafeTypeName(array->type), expected.rows,
                             expected.cols);
        }
        made.ChangeToF32(i);
    }
    return made;
}

Status CheckpointSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count,
                                 int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                                 uint64_t* bytes_read) const {
    if (bytes_read != nullptr) *bytes_read += out.size();
    if (out.empty()) return {};
    const model_files::TensorInfo& tensor = tensors()[index];
    const Array& array = *checkpoint_->Find(kWeightKind, tensor.name);
    if (!IsVector(tensor)) {
        return checkpoint_->Read(
            array, {row_begin, row_count, col_begin, col_count, 0, row_count * col_count}, out);
    }
    const bool whole = col_count == tensor.cols;  // rows: all of them are one piece
    const int64_t pieces = whole ? 1 : row_count, count = whole ? row_count * col_count : col_count;
    const size_t bytes = out.size() / static_cast<size_t>(pieces);
    for (int64_t i = 0; i < pieces; ++i) {
        const int64_t begin = (row_begin + i) * tensor.cols + col_begin;
        WEFT_TRY(checkpoint_->Read(array, {0, 1, begin, count, 0, count},
                                   out.subspan(static_cast<size_t>(i) * bytes, bytes)));
    }
    return {};
}

}  // namespace weft::train

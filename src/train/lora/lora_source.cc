#include "train/lora/lora_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "train/data/random.h"

namespace weft::train {

Result<std::unique_ptr<LoraSource>> LoraSource::Make(
    std::unique_ptr<model_files::ModelSource> model, const LoraOptions& words) {
    WEFT_ASSIGN(LoraPlan plan, PlanLora(*model, words));
    std::unique_ptr<LoraSource> made(new LoraSource(std::move(model), std::move(plan)));
    if (!made->plan_.words.from.empty()) {
        WEFT_ASSIGN(model_files::AdapterFile file, model_files::AdapterFile::Open(made->plan_));
        made->file_.emplace(std::move(file));
    }
    for (const LoraTarget& target : made->plan_.targets) {
        made->AddMatrix(target.NameA(), DType::kF32, target.rank, target.cols);
        made->AddMatrix(target.NameB(), DType::kF32, target.rows, target.rank);
    }
    return made;
}

Status LoraSource::ReadRow(size_t adapter, int64_t row, std::span<float> out) const {
    const LoraTarget& target = plan_.targets[adapter / 2];
    const bool is_b = adapter % 2 == 1;
    if (file_) return file_->Read(target, is_b, row, 1, out);
    std::ranges::fill(out, 0.0f);
    if (is_b) return {};
    // (FNV-1a of the name: the same on all machines.)
    uint64_t stream = 0xcbf29ce484222325ull;
    for (const char c : target.module) {
        stream = (stream ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    }
    stream ^= Mix(plan_.words.seed);
    const double bound = 1.0 / std::sqrt(static_cast<double>(target.cols));
    for (size_t col = 0; col < out.size(); ++col) {
        const auto element = static_cast<uint64_t>(row * target.cols) + col;
        out[col] = static_cast<float>((UnitOf(Mix(stream ^ Mix(element))) * 2 - 1) * bound);
    }
    return {};
}

Status LoraSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                           int64_t col_count, std::span<std::byte> out,
                           uint64_t* bytes_read) const {
    const size_t adapter = index - under().tensors().size();
    std::vector<float> row(static_cast<size_t>(tensors()[index].cols));
    const size_t bytes = static_cast<size_t>(col_count) * sizeof(float);
    for (int64_t i = 0; i < row_count; ++i) {
        WEFT_TRY(ReadRow(adapter, row_begin + i, row));
        std::memcpy(out.data() + static_cast<size_t>(i) * bytes, row.data() + col_begin, bytes);
    }
    if (bytes_read != nullptr) *bytes_read += out.size();
    return {};
}

std::vector<const model_files::WeightFile*> LoraSource::Files() const {
    std::vector<const model_files::WeightFile*> files = SourceOver::Files();
    if (file_) files.push_back(&file_->file());
    return files;
}

Result<std::string> LoraSource::Fingerprint() const {
    WEFT_ASSIGN(const std::string model, under().Fingerprint());
    const LoraOptions& words = plan_.words;
    // (The seed is not included: every checkpoint has A as trained, and all ranks get the seed from
    // one job.)
    std::string text =
        fmt::format("{} lora {} {} {}", model, words.rank, words.alpha, words.rslora);
    model_files::FingerprintMaker maker;
    for (const LoraTarget& target : plan_.targets) {
        text += " " + target.module;
        const bool own = target.rank != words.rank || target.alpha != words.alpha;
        if (own) text += fmt::format(":{}:{}", target.rank, target.alpha);
    }
    maker.Add(std::as_bytes(std::span(text)));
    return maker.Finish();
}

Result<std::unique_ptr<model_files::ModelSource>> WithAdapters(
    std::unique_ptr<model_files::ModelSource> source, const LoraOptions& words) {
    const bool has = std::ranges::any_of(source->tensors(), [](const auto& tensor) {
        return tensor.name.starts_with(kAdapterPrefix);
    });
    if (has || !words.on()) return source;
    WEFT_ASSIGN(std::unique_ptr<LoraSource> made, LoraSource::Make(std::move(source), words));
    return std::unique_ptr<model_files::ModelSource>(std::move(made));
}

}  // namespace weft::train

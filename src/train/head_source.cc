#include "train/head_source.h"

#include <cstring>
#include <string>
#include <utility>

#include "model_files/hf/json.h"
#include "model_files/synthetic_weights.h"

namespace weft::train {
namespace {

using model_files::Metadata;
using model_files::MetaEntry;
using model_files::Pooling;

constexpr const char* kScoreHead = "cls.output.weight";

class HeadSource final : public model_files::SourceOver {
  public:
    explicit HeadSource(std::unique_ptr<model_files::ModelSource> model)
        : SourceOver(std::move(model)), meta_(under().meta()) {}

    void AddHead(int64_t labels, int64_t hidden, float deviation, uint64_t seed) {
        key_ = model_files::WeightKey(seed, kScoreHead);
        deviation_ = deviation;
        AddMatrix(kScoreHead, DType::kF32, labels, hidden);
    }
    // GGUF's numbers: 1 mean, 2 first token, 3 last token.
    void SetPooling(const std::string& key, uint32_t type) {
        pooling_key_ = key;
        pooling_ = type;
        std::vector<MetaEntry> entries = under().meta().entries();
        std::erase_if(entries, [&](const MetaEntry& entry) { return entry.key == pooling_key_; });
        entries.push_back({pooling_key_, model_files::MetaType::kU32, model_files::MetaType::kU32,
                           1, std::as_bytes(std::span(&pooling_, 1))});
        meta_ = Metadata(name(), std::move(entries));
    }

    const Metadata& meta() const override { return meta_; }
    Result<std::string> Fingerprint() const override {
        WEFT_ASSIGN(const std::string model, under().Fingerprint());
        if (key_ == 0) return model;
        model_files::FingerprintMaker maker;
        maker.Add(std::as_bytes(std::span(model)));
        maker.Add(key_);
        return maker.Finish();
    }

  private:
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override {
        std::vector<float> row(static_cast<size_t>(col_count));
        const size_t bytes = row.size() * sizeof(float);
        for (int64_t i = 0; i < row_count; ++i) {
            const int64_t first = (row_begin + i) * tensors()[index].cols + col_begin;
            model_files::RandomNormal(key_, static_cast<uint64_t>(first), deviation_, row);
            std::memcpy(out.data() + static_cast<size_t>(i) * bytes, row.data(), bytes);
        }
        if (bytes_read != nullptr) *bytes_read += out.size();
        return {};
    }

    Metadata meta_;
    std::string pooling_key_;
    uint32_t pooling_ = 0;
    uint64_t key_ = 0;  // of the head's random values; 0: the model has the head
    float deviation_ = 0;
};

Result<std::string> ArchitectureOf(const model_files::ModelSource& source) {
    return source.meta().String("general.architecture");
}

Result<double> DeviationOf(const model_files::ModelSource& source) {
    constexpr double kUsual = 0.02;
    if (source.folder().empty()) return kUsual;
    WEFT_ASSIGN(const auto config,
                model_files::hf::Config::ReadIfThere(source.folder() + "/config.json"));
    return config.F64Or({"initializer_range"}, kUsual);
}

// Only causal models: the head of an encoder has more matrices.
Status CheckHead(const model_files::ModelSource& source, const VectorOptions& options) {
    WEFT_ASSIGN(const std::string architecture, ArchitectureOf(source));
    WEFT_ASSIGN(const bool causal, source.meta().BoolOr(architecture + ".attention.causal", true));
    if (!causal) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: --loss {} trains causal models; this one is an encoder. Use a model "
                         "that generates text",
                         source.name(), LossName(options.loss));
    }
    const int64_t has = LabelsOf(source);
    const int64_t wanted = options.loss == LossKind::kReward ? 1 : options.labels;
    if (has == 0 && wanted == 0) {
        return MakeError(ErrorCode::kUsage,
                         "--loss classification: {} has no score head. --num-labels N gives it one "
                         "with N classes",
                         source.name());
    }
    if (options.loss == LossKind::kClassification && has == 1) {
        return MakeError(ErrorCode::kUsage,
                         "--loss classification: the score head of {} has one label, so there is "
                         "nothing to choose. Train it with --loss reward, or start from a model "
                         "without a head",
                         source.name());
    }
    if (has == 0 || wanted == 0 || has == wanted) return {};
    return MakeError(ErrorCode::kUsage,
                     "--loss {}: the score head of {} has {} labels; expected {}",
                     LossName(options.loss), source.name(), has, wanted);
}

}  // namespace

int64_t LabelsOf(const model_files::ModelSource& source) {
    const model_files::TensorInfo* head = source.FindTensor(kScoreHead);
    return head == nullptr ? 0 : head->rows;
}

Result<std::unique_ptr<model_files::ModelSource>> WithHead(
    std::unique_ptr<model_files::ModelSource> source, const VectorOptions& options, uint64_t seed) {
    if (!options.on()) return source;
    WEFT_ASSIGN(const std::string architecture, ArchitectureOf(*source));
    if (HasHead(options.loss)) {
        WEFT_TRY(CheckHead(*source, options));
        if (LabelsOf(*source) > 0) return source;
        WEFT_ASSIGN(const int64_t hidden,
                    source->meta().Int(architecture + ".embedding_length", 1, 1 << 20));
        WEFT_ASSIGN(const double deviation, DeviationOf(*source));
        auto made = std::make_unique<HeadSource>(std::move(source));
        made->AddHead(options.loss == LossKind::kReward ? 1 : options.labels, hidden,
                      static_cast<float>(deviation), seed);
        return std::unique_ptr<model_files::ModelSource>(std::move(made));
    }
    WEFT_ASSIGN(const auto head, model_files::ReadEmbeddingHead(*source));
    if (head.scores) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: has a score head, which makes no vectors for --loss contrastive",
                         source->name());
    }
    WEFT_ASSIGN(const Pooling pooling, PoolingOf(options, head));
    auto made = std::make_unique<HeadSource>(std::move(source));
    made->SetPooling(architecture + ".pooling_type", pooling == Pooling::kMean  ? 1
                                                     : pooling == Pooling::kCls ? 2
                                                                                : 3);
    return std::unique_ptr<model_files::ModelSource>(std::move(made));
}

}  // namespace weft::train

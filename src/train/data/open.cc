#include "train/data/open.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "model_files/read_tokenizer.h"
#include "train/data/day.h"
#include "train/vector_loss.h"

namespace weft::train {
namespace {

Result<LongSamples> LongSamplesOf(const std::string& word) {
    if (word == "truncate") return LongSamples::kTruncate;
    if (word == "skip") return LongSamples::kSkip;
    if (word == "split") return LongSamples::kSplit;
    return MakeError(ErrorCode::kUsage, "--long '{}'; expected truncate, skip or split", word);
}

// Preferences need whole answers, and completions whole prompts.
Result<LossKind> LossOf(const DatasetOptions& words) {
    const auto loss = FindLoss(words.loss);
    if (!loss) {
        return MakeError(ErrorCode::kUsage, "--loss '{}'; expected {}", words.loss, kLossNames);
    }
    const LossOver over = OverOf(*loss);
    if (*loss != LossKind::kTokens && IsSynthetic(words.data)) {
        return MakeError(ErrorCode::kUsage,
                         "--loss {} with --data {}: random tokens have no {}. Name a file",
                         words.loss, words.data.front(),
                         over == LossOver::kAnswers   ? "preferences"
                         : over == LossOver::kVectors ? "texts"
                                                      : "prompts");
    }
    if (*loss == LossKind::kTokens || words.longs != "split") return *loss;
    return MakeError(ErrorCode::kUsage,
                     "--loss {} with --long split: the loss needs the whole {}. Use truncate, "
                     "skip or a larger --seq-len",
                     words.loss,
                     over == LossOver::kAnswers   ? "answer"
                     : over == LossOver::kVectors ? "text"
                                                  : "prompt");
}

// Makes samples from records of texts.
Result<TextForm> FormOf(const model_files::ModelSource& source, LossKind loss,
                        const DatasetOptions& words) {
    TextForm form;
    if (!IsOverVectors(loss)) return form;
    form.labels = words.labels;
    const model_files::TensorInfo* head = source.FindTensor("cls.output.weight");
    if (form.labels == 0 && head != nullptr) form.labels = head->rows;
    VectorOptions options;
    options.loss = loss;
    options.pooling = words.pooling;
    model_files::EmbeddingHead read;
    if (!HasHead(loss)) {
        WEFT_ASSIGN(read, model_files::ReadEmbeddingHead(source));
    }
    WEFT_ASSIGN(form.pooling, PoolingOf(options, read));
    if (words.longs != "truncate") return form;
    form.most_tokens = words.sequence;
    if (read.most_tokens > 0) form.most_tokens = std::min(form.most_tokens, read.most_tokens);
    return form;
}

Result<std::unique_ptr<DataSet>> OpenSet(const model_files::ModelSource& source,
                                         const DataOptions& options, const DatasetOptions& words,
                                         int64_t rows, OpenedData& opened) {
    if (!model_files::HasTokenizer(source)) {
        if (rows == 0) return MakeError(ErrorCode::kNotFound, "{}: no tokenizer", source.name());
        return DataSet::Open(options, Encoder::OfIds(rows));
    }
    WEFT_ASSIGN(opened.tokenizer, model_files::LoadTokenizer(source));
    // A missing template is an error only for data that needs one.
    EncoderOptions how;
    auto chat = chat::Chat::Load(source.meta(), *opened.tokenizer);
    if (!chat.ok()) {
        if (words.prompt_type == 5) return chat.error();
        how.no_chat = chat.error().message;
    } else {
        opened.chat = std::make_unique<chat::Chat>(std::move(chat).value());
    }
    WEFT_ASSIGN(how.control, ControlModeOf(words.control_tokens));
    WEFT_ASSIGN(how.now_s, NoonOf(words.day));
    WEFT_ASSIGN(const auto encoder,
                Encoder::Make(*opened.tokenizer, opened.chat.get(), words.prompt_type, rows, how));
    return DataSet::Open(options, encoder);
}

}  // namespace

Status SetSequence(const model::Hyper& hyper, int64_t& sequence) {
    if (sequence == 0) sequence = std::min(kDefaultSequence, hyper.context);
    return model::CheckContext(hyper, sequence, fmt::format("--seq-len {}", sequence));
}

std::string DataName(const DatasetOptions& words) {
    return fmt::format("{}", fmt::join(words.data, ", "));
}

Result<OpenedData> OpenData(const model_files::ModelSource& source, const DatasetOptions& words,
                            int64_t vocab) {
    OpenedData opened;
    if (words.completion >= words.sequence) {
        return MakeError(ErrorCode::kUsage,
                         "--max-completion-length {} with --seq-len {}: a sequence has the prompt, "
                         "too. Use a larger --seq-len",
                         words.completion, words.sequence);
    }
    WEFT_ASSIGN(opened.loader.longs, LongSamplesOf(words.longs));
    DataOptions options;
    options.specs = words.data;
    options.split = {words.test_split, words.seed};
    WEFT_ASSIGN(options.loss, LossOf(words));
    options.sequence = words.sequence;
    WEFT_ASSIGN(options.texts, FormOf(source, options.loss, words));
    if (IsSynthetic(words.data)) {
        WEFT_ASSIGN(opened.set, DataSet::RandomTokens(options, static_cast<int32_t>(vocab)));
    } else {
        WEFT_ASSIGN(opened.set, OpenSet(source, options, words, vocab, opened));
    }
    opened.loader.sequence = words.sequence - words.completion;
    opened.loader.pack = words.pack && options.loss == LossKind::kTokens;
    opened.loader.may_split = options.loss == LossKind::kTokens;
    opened.loader.shuffle = words.shuffle;
    opened.loader.skip_bad = words.skip_bad;
    opened.loader.seed = words.seed;
    if (!words.weights.empty()) {
        WEFT_ASSIGN(opened.loader.mixture, Mixture::Make(opened.set->SizesOf(Part::kTrain),
                                                         words.weights, words.shuffle, words.seed));
    }
    return opened;
}

}  // namespace weft::train

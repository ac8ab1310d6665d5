// libFuzzer target: any bytes as a file of training records, in every form. Records are found,
// parsed, tokenized and packed; the sequences must be consistent.
//     build-fuzz/fuzz/train_data_fuzz -max_total_time=60 -malloc_limit_mb=256
//     fuzz/corpus/train_data
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "support/memory_file.h"
#include "support/tiny_vocabulary.h"
#include "train/data/inspect.h"

namespace {

using namespace weft;
using namespace weft::train;

void CheckSequence(const Sequence& sequence) {
    const size_t most = 24 * std::max<size_t>(1, sequence.roles.size());
    WEFT_CHECK(sequence.tokens.size() >= 24 && sequence.tokens.size() <= most);
    WEFT_CHECK(sequence.targets.size() == sequence.tokens.size());
    WEFT_CHECK(sequence.roles.empty() || sequence.roles.size() == sequence.begins.size());
    int32_t last = -1;
    for (const int32_t begin : sequence.begins) {
        WEFT_CHECK(begin > last && begin < sequence.used);
        last = begin;
    }
    WEFT_CHECK(sequence.begins.empty() || sequence.begins.front() == 0);
    for (const int32_t id : sequence.tokens) WEFT_CHECK(id >= 0 && id < 259);
    for (const int32_t id : sequence.targets) WEFT_CHECK(id >= -1 && id < 259);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    static weft::support::MemoryFile file;
    static const auto tokenizer = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair()).value();
    static const chat::Chat chat = chat::Chat::Make("", *tokenizer).value();
    const std::string& path = file.Write(bytes, size);
    const int prompt_type = size == 0 ? 0 : bytes[size - 1] % kPromptTypes;
    const auto encoder = Encoder::Make(*tokenizer, &chat, prompt_type).value();
    DataOptions options;
    options.specs = {path};
    options.split.test = size % 2 == 0 ? 0.3 : 0;
    constexpr LossKind kKinds[] = {LossKind::kTokens,     LossKind::kDpo,
                                   LossKind::kOrpo,       LossKind::kKto,
                                   LossKind::kReward,     LossKind::kClassification,
                                   LossKind::kContrastive};
    options.loss = kKinds[size % std::size(kKinds)];
    options.texts = {model_files::Pooling::kMean, 24, 3, 0};
    const auto data = DataSet::Open(options, encoder);
    if (!data.ok()) {
        WEFT_CHECK(!data.error().message.empty());
        return 0;
    }
    InspectOptions inspect;
    inspect.loader.sequence = 24;
    inspect.loader.skip_bad = true;
    const bool whole = options.loss != LossKind::kTokens;
    inspect.loader.longs = whole ? LongSamples::kTruncate : LongSamples::kSplit;
    inspect.loader.pack = !whole;
    inspect.loader.epochs = 1;
    const auto report = InspectData(**data, tokenizer.get(), inspect);
    if (report.ok()) (void)ReportText(*report);
    auto loader = Loader::Make(**data, inspect.loader);
    if (!loader.ok()) return 0;
    for (;;) {
        const auto batch = loader->Next();
        if (!batch.ok() || !batch->has_value()) return 0;
        for (const Sequence& sequence : (*batch)->sequences) CheckSequence(sequence);
    }
}

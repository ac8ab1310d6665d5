// Tokenizer::Make: makes a tokenizer's parts from GGUF's names.
#include <string>

#include "tokenizer/families.h"
#include "tokenizer/json_steps.h"
#include "tokenizer/normalize.h"
#include "tokenizer/parts.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {
namespace {

// Merges of adjacent tokens whose joined text is a token; the lowest id merges first.
std::vector<PairMerge> MergesById(const Vocabulary& vocabulary) {
    std::vector<PairMerge> merges;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
        if (!IsPlain(vocabulary.Type(id))) continue;
        AppendSplits(vocabulary, id, merges);
    }
    return merges;
}

Result<std::unique_ptr<const TokenModel>> MakePairs(const Vocabulary& vocabulary) {
    const TokenizerData& data = vocabulary.data();
    WEFT_ASSIGN(Family family, MakeFamily(data.model == "gemma4" ? "gemma4" : data.pre));
    WEFT_ASSIGN(std::vector<PairMerge> merges, ReadMerges(vocabulary));
    if (merges.empty() && data.pre == "kimi-k2") merges = MergesById(vocabulary);
    PipelineParts parts;
    parts.words = std::move(family.words);
    if (family.traits.code_points) {
        NormalizeSteps steps;
        WEFT_ASSIGN(Regex space, Regex::Make(" "));
        steps.push_back(Replace(std::move(space), std::string(kSpaceMark)));
        parts.normalizer = Normalizer(std::move(steps));
        parts.model = MakeCodePointPairModel(
            vocabulary, merges,
            {.whole_newlines = true, .byte_fallback = true, .unknown = data.unk});
    } else {
        WEFT_ASSIGN(parts.model, MakeBytePairModel(vocabulary, merges, family.traits.whole_words));
    }
    return MakePipeline(std::move(parts));
}

Result<std::unique_ptr<const TokenModel>> MakeUnigram(const Vocabulary& vocabulary) {
    const TokenizerData& data = vocabulary.data();
    PipelineParts parts;
    SentencePieceRules rules;
    WEFT_ASSIGN(rules.charsmap, Charsmap::Read(data.charsmap));
    rules.add_dummy_prefix = data.add_space_prefix;
    rules.remove_extra_spaces = data.remove_extra_spaces;
    NormalizeSteps steps;
    steps.push_back(SentencePiece(std::move(rules)));
    parts.normalizer = Normalizer(std::move(steps));
    WEFT_ASSIGN(parts.model, MakeSentencePieceUnigram(vocabulary, false));
    return MakePipeline(std::move(parts));
}

// GGUF does not state whether BERT's normalizer converts to lower case; llama.cpp always does.
Result<std::unique_ptr<const TokenModel>> MakeWordPiece(const Vocabulary& vocabulary) {
    constexpr int64_t kMostPoints = 100;
    PipelineParts parts;
    WEFT_ASSIGN(NormalizeSteps steps, ReadNormalizer({{"type", "BertNormalizer"}}));
    parts.normalizer = Normalizer(std::move(steps));
    WEFT_ASSIGN(JsonSplit split, ReadPreTokenizer({{"type", "BertPreTokenizer"}}, false));
    parts.words = PreTokenizer(std::move(split.steps));
    WEFT_ASSIGN(parts.model, MakeWordPieceModel(vocabulary, {.prefix = "",
                                                             .most_points = kMostPoints,
                                                             .begin = std::string(kSpaceMark)}));
    return MakePipeline(std::move(parts));
}

Result<std::unique_ptr<const TokenModel>> MakeModel(const Vocabulary& vocabulary) {
    if (vocabulary.data().model == "llama") return MakeSpmModel(vocabulary);
    if (vocabulary.data().model == "t5") return MakeUnigram(vocabulary);
    if (vocabulary.data().model == "bert") return MakeWordPiece(vocabulary);
    return MakePairs(vocabulary);
}

// Ollama's files of Gemma 4 have the byte tokens as normal ones.
void TypeBytes(TokenizerData& data) {
    for (size_t id = 0; id < std::min(data.tokens.size(), data.types.size()); ++id) {
        const bool normal = data.types[id] == static_cast<int32_t>(TokenType::kNormal);
        if (!normal || ByteOfHexToken(data.tokens[id]) < 0) continue;
        data.types[id] = static_cast<int32_t>(TokenType::kByte);
    }
}

}  // namespace

bool IsTokenizerModel(std::string_view model) {
    return model == "gpt2" || model == "gemma4" || model == "llama" || model == "t5" ||
           model == "bert";
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Make(TokenizerData data) {
    if (!IsTokenizerModel(data.model)) {
        return MakeError(ErrorCode::kUnsupported,
                         "tokenizer: tokenizer.ggml.model '{}' is not supported; supported: gpt2 "
                         "(byte-level BPE), gemma4 (BPE), llama (SentencePiece BPE), t5 "
                         "(SentencePiece Unigram), bert (WordPiece)",
                         data.model.substr(0, 80));
    }
    TypeMarkers(data, true);
    if (data.model == "gemma4") TypeBytes(data);
    TokenizerParts parts;
    WEFT_ASSIGN(parts.vocabulary, Vocabulary::Make(std::move(data)));
    WEFT_ASSIGN(parts.model, MakeModel(*parts.vocabulary));
    using enum TokenType;
    parts.always = SpecialEntries(*parts.vocabulary, {kUserDefined});
    parts.on_request = SpecialEntries(*parts.vocabulary, {kUserDefined, kControl, kUnknown});
    return Assemble(std::move(parts));
}

}  // namespace weft::tokenizer

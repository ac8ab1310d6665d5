#include "tokenizer/read_json.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/utf8.h"
#include "tokenizer/byte_spelling.h"
#include "tokenizer/frame.h"
#include "tokenizer/json_steps.h"
#include "tokenizer/parts.h"
#include "tokenizer/pipeline.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;

// State while a tokenizer.json is read.
struct Reading {
    TokenizerData data;
    std::vector<double> scores;  // Unigram scores by id
    std::vector<AddedToken> added;
    std::vector<int32_t> outside;  // added tokens that the model itself does not have
    std::string unknown;           // text of the model's unknown token
    int32_t unknown_id = -1;       // id of the model's unknown token
    bool byte_fallback = false;
    bool fuse_unknown = false;
    bool whole_words = false;
    std::optional<WordPieceOptions> pieces;
};

Status PutToken(std::string_view text, int64_t id, Reading& reading) {
    auto& tokens = reading.data.tokens;
    const auto at = static_cast<size_t>(id);
    if (at >= tokens.size()) tokens.resize(at + 1);
    if (!tokens[at].empty() && tokens[at] != text) {
        return MakeError(ErrorCode::kCorrupt, "tokens '{}' and '{}' both have the id {}",
                         tokens[at].substr(0, 80), text.substr(0, 80), id);
    }
    tokens[at] = text;
    return {};
}

// Allows a few gaps between ids; memory is allocated for all ids up to the highest.
Status CheckIds(int64_t most, size_t count) {
    if (most < 0 ||
        most >= std::min<int64_t>(kMostTokens, 4 * static_cast<int64_t>(count) + 4096)) {
        return MakeError(ErrorCode::kCorrupt, "a token has the id {}, but there are only {} tokens",
                         most, count);
    }
    return {};
}

Status ReadTokenIds(Fields& model, Reading& reading) {
    const json* vocab = model.Find("vocab");
    if (vocab == nullptr || !vocab->is_object()) {
        return MakeError(ErrorCode::kCorrupt, "model: 'vocab' is not an object");
    }
    for (const auto& [text, id] : vocab->items()) {
        const bool fits = id.is_number_integer() && id >= 0 && id < kMostTokens;
        if (!fits) {
            return MakeError(ErrorCode::kCorrupt, "model: vocab: '{}' has no id",
                             text.substr(0, 80));
        }
        WEFT_TRY(CheckIds(id.get<int64_t>(), vocab->size()));
        WEFT_TRY(PutToken(text, id.get<int64_t>(), reading));
    }
    return {};
}

Status ReadBpe(Fields& model, Reading& reading) {
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (model.TextOr(affix, "").empty()) continue;
        return MakeError(ErrorCode::kUnsupported, "model: BPE with a {} is not supported", affix);
    }
    const json* dropout = model.Find("dropout");
    if (dropout != nullptr && !(dropout->is_number() && *dropout == 0)) {
        return MakeError(ErrorCode::kUnsupported, "model: BPE with dropout is not supported");
    }
    reading.unknown = model.TextOr("unk_token", "");
    reading.byte_fallback = model.BoolOr("byte_fallback", false);
    reading.fuse_unknown = model.BoolOr("fuse_unk", false);
    reading.whole_words = model.BoolOr("ignore_merges", false);
    WEFT_TRY(model.status());
    return ReadTokenIds(model, reading);
}

Status ReadWordPiece(Fields& model, Reading& reading) {
    reading.unknown = model.TextOr("unk_token", "[UNK]");
    reading.pieces = WordPieceOptions{model.TextOr("continuing_subword_prefix", "##"),
                                      model.IntOr("max_input_chars_per_word", 0, 1 << 20, 100)};
    WEFT_TRY(model.status());
    return ReadTokenIds(model, reading);
}

Status ReadUnigram(Fields& model, Reading& reading) {
    const json& vocab = model.Array("vocab");
    reading.byte_fallback = model.BoolOr("byte_fallback", false);
    const int64_t most = static_cast<int64_t>(vocab.size()) - 1;
    const int64_t unknown = model.IntOr("unk_id", 0, most, -1);
    WEFT_TRY(model.status());
    for (const json& entry : vocab) {
        const bool pair =
            entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
        if (!pair || std::isnan(entry[1].get<double>())) {
            return MakeError(ErrorCode::kCorrupt,
                             "model: vocab[{}] is not a pair of a token and its score",
                             reading.scores.size());
        }
        reading.data.tokens.push_back(entry[0].get<std::string>());
        reading.scores.push_back(entry[1].get<double>());
    }
    reading.data.unk = static_cast<int32_t>(unknown);
    return {};
}

Status ReadAdded(const json& root, Reading& reading) {
    Fields fields(root, "the file");
    if (fields.Find("added_tokens") == nullptr) return {};
    const json& list = fields.Array("added_tokens");
    WEFT_TRY(fields.status());
    for (const json& object : list) {
        Fields token(object, "added_tokens");
        const int64_t id = token.IntOr("id", 0, kMostTokens - 1, -1);
        WEFT_TRY(token.status());
        WEFT_TRY(CheckIds(id, reading.data.tokens.size() + list.size()));
        WEFT_ASSIGN(AddedToken read, ReadAddedToken(object, id));
        if (read.text.empty()) continue;
        const auto at = static_cast<size_t>(id);
        const bool own = at < reading.data.tokens.size() && !reading.data.tokens[at].empty();
        if (!own) reading.outside.push_back(read.id);
        WEFT_TRY(PutToken(read.text, id, reading));
        AddFlags(read, reading.data);
        reading.added.push_back(std::move(read));
    }
    return {};
}

void SetTypes(Reading& reading) {
    TokenizerData& data = reading.data;
    data.types.assign(data.tokens.size(), static_cast<int32_t>(TokenType::kNormal));
    const auto set = [&](int32_t id, TokenType type) {
        data.types[static_cast<size_t>(id)] = static_cast<int32_t>(type);
    };
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        const bool byte = reading.byte_fallback && ByteOfHexToken(data.tokens[id]) >= 0;
        if (byte) set(static_cast<int32_t>(id), TokenType::kByte);
        const bool unknown = !reading.unknown.empty() && data.tokens[id] == reading.unknown;
        if (unknown) data.unk = static_cast<int32_t>(id);
    }
    reading.unknown_id = data.unk;
    if (data.unk >= 0) set(data.unk, TokenType::kUnknown);
    for (const AddedToken& token : reading.added) {
        if (token.id == data.unk) continue;
        set(token.id, token.special ? TokenType::kControl : TokenType::kUserDefined);
    }
}

// Reads merges as "left right" or as pairs.
Result<std::vector<PairMerge>> ReadPairs(Fields& model, const Vocabulary& vocabulary) {
    const json& list = model.Array("merges");
    WEFT_TRY(model.status());
    std::vector<PairMerge> merges;
    merges.reserve(list.size());
    std::string left, right;
    for (const json& entry : list) {
        const size_t rank = &entry - list.get_ptr<const json::array_t*>()->data();
        left.clear();
        right.clear();
        if (entry.is_string()) {
            const auto& text = entry.get_ref<const std::string&>();
            const size_t space = text.find(' ', 1);
            if (space != text.npos) left = text.substr(0, space), right = text.substr(space + 1);
        } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                   entry[1].is_string()) {
            left = entry[0].get<std::string>(), right = entry[1].get<std::string>();
        }
        const int32_t left_id = vocabulary.Find(left), right_id = vocabulary.Find(right);
        const int32_t joined = vocabulary.Find(left + right);
        if (left.empty() || right.empty() || left_id < 0 || right_id < 0 || joined < 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "model: merges[{}] is not a pair of tokens that merge into a third",
                             rank);
        }
        // Merges into control tokens are skipped, since text never becomes one.
        const TokenType type = vocabulary.Type(joined);
        if (!IsPlain(type)) continue;
        merges.push_back({static_cast<uint32_t>(rank), left_id, right_id, joined});
    }
    return merges;
}

bool HasAllBytes(const Vocabulary& vocabulary) {
    for (int byte = 0; byte < 256; ++byte) {
        if (vocabulary.FindPlain(SpelledByte(static_cast<uint8_t>(byte))) < 0) return false;
    }
    return true;
}

Result<std::unique_ptr<const WordModel>> MakeWordModel(Fields& model, bool bytes,
                                                       const Reading& reading,
                                                       const Vocabulary& vocabulary) {
    const int32_t unknown = reading.unknown_id;
    if (model.Text("type") == "Unigram") {
        double least = 0;
        for (size_t i = 0; i < reading.scores.size(); ++i) {
            least = i == 0 ? reading.scores[0] : std::min(least, reading.scores[i]);
        }
        std::vector<double> scores = reading.scores;
        scores.resize(vocabulary.data().tokens.size());
        return MakeUnigramModel(vocabulary, scores,
                                {.byte_fallback = reading.byte_fallback,
                                 .unknown = unknown,
                                 .unknown_score = least - 10});
    }
    if (reading.pieces) return MakeWordPieceModel(vocabulary, *reading.pieces);
    WEFT_ASSIGN(const std::vector<PairMerge> merges, ReadPairs(model, vocabulary));
    if (bytes) return MakeBytePairModel(vocabulary, merges, reading.whole_words);
    return MakeCodePointPairModel(vocabulary, merges,
                                  {.whole_words = reading.whole_words,
                                   .byte_fallback = reading.byte_fallback,
                                   .fuse_unknown = reading.fuse_unknown,
                                   .unknown = unknown});
}

// Distributes added tokens to those matched in the original text and those matched in normalized
// text.
void PlaceAdded(const Reading& reading, PipelineParts& pipeline, TokenizerParts& parts) {
    const Vocabulary& vocabulary = *parts.vocabulary;
    for (const AddedToken& token : reading.added) {
        SpecialScanner::Entry entry{vocabulary.Text(token.id), token.id, token.takes_left,
                                    token.takes_right, token.single_word};
        if (token.special || vocabulary.Type(token.id) == TokenType::kControl) {
            parts.on_request.push_back(entry);
        } else if (!token.normalized) {
            parts.always.push_back(entry);
            parts.on_request.push_back(entry);
        } else {
            pipeline.normalized_texts.push_back(pipeline.normalizer.Apply(token.text));
            entry.text = pipeline.normalized_texts.back();
            if (!entry.text.empty()) pipeline.normalized_tokens.push_back(entry);
        }
    }
}

Result<std::unique_ptr<Tokenizer>> Build(const json& root, Fields& model, Reading reading,
                                         const TokenizerHints& hints) {
    static const json null;
    const auto part = [&](const char* key) -> const json& {
        const auto found = root.find(key);
        return found == root.end() ? null : *found;
    };
    WEFT_TRY(SetFrame(part("post_processor"), hints, reading.data));
    TypeMarkers(reading.data, false);
    TokenizerParts parts;
    WEFT_ASSIGN(parts.vocabulary, Vocabulary::Make(std::move(reading.data)));
    for (const int32_t id : reading.outside) parts.vocabulary->SetOutside(id);
    const Vocabulary& vocabulary = *parts.vocabulary;

    PipelineParts pipeline;
    WEFT_ASSIGN(NormalizeSteps steps, ReadNormalizer(part("normalizer")));
    pipeline.normalizer = Normalizer(std::move(steps));
    WEFT_ASSIGN(JsonSplit split, ReadPreTokenizer(part("pre_tokenizer"), false));
    // Byte-level BPE uses the fast model, unless a byte could become the unknown token.
    const bool bytes = split.bytes && model.Text("type") == "BPE" &&
                       (reading.unknown_id < 0 || HasAllBytes(vocabulary));
    if (split.bytes && !bytes) {
        WEFT_ASSIGN(split, ReadPreTokenizer(part("pre_tokenizer"), true));
    }
    pipeline.words = PreTokenizer(std::move(split.steps));
    WEFT_ASSIGN(JsonDecoder decoder, ReadDecoder(part("decoder")));
    parts.user_bytes_by_model = !decoder.pieces.unspell;
    if (!part("decoder").is_null() && !decoder.by_model) {
        pipeline.pieces = std::make_unique<PieceRule>(std::move(decoder.pieces));
    }
    WEFT_ASSIGN(pipeline.model, MakeWordModel(model, bytes, reading, vocabulary));
    PlaceAdded(reading, pipeline, parts);
    parts.model = MakePipeline(std::move(pipeline));
    return Tokenizer::Assemble(std::move(parts));
}

// A line for each merge, below lines of comments ("#version: 0.2").
Result<json> ReadMergeLines(std::string_view text, size_t tokens) {
    if (!IsUtf8(text)) return MakeError(ErrorCode::kCorrupt, "merges.txt is not UTF-8");
    const size_t most = 16 * tokens;  // a token is the result of a few merges
    json merges = json::array();
    while (!text.empty()) {
        const size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == text.npos ? text.size() : end + 1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || line.starts_with("#version")) continue;
        if (merges.size() >= most) {
            return MakeError(ErrorCode::kCorrupt, "merges.txt has over {} merges for {} tokens",
                             most, tokens);
        }
        merges.push_back(line);
    }
    return merges;
}

json AddedTokensOf(const json& vocab, const TokenizerHints& hints) {
    json added = json::array();
    const auto add = [&](const AddedToken& token) {
        added.push_back({{"id", token.id},
                         {"content", token.text},
                         {"special", token.special},
                         {"lstrip", token.takes_left},
                         {"rstrip", token.takes_right},
                         {"single_word", token.single_word},
                         {"normalized", token.normalized}});
    };
    std::set<std::string> names = {""};
    auto next = static_cast<int32_t>(vocab.size());
    for (const AddedToken& token : hints.added) {
        names.insert(token.text);
        next = std::max(next, token.id + 1);
        add(token);
    }
    for (const std::string& text : NamedTokens(hints)) {
        if (!names.insert(text).second) continue;
        const auto found = vocab.find(text);
        const bool is_new = found == vocab.end();
        if (!is_new && !found->is_number_integer()) continue;
        add({.id = is_new ? next++ : found->get<int32_t>(), .text = text, .special = true});
    }
    return added;
}

// Without a class, transformers uses the class of the model's type.
bool IsOfGpt2(const TokenizerHints& hints) {
    constexpr std::string_view kTypes[] = {"gpt2", "gpt_neo", "gptj", "opt"};
    const std::string_view name = hints.tokenizer_class;
    if (name.empty()) return std::ranges::find(kTypes, hints.model_type) != std::end(kTypes);
    return name == "GPT2Tokenizer" || name == "GPT2TokenizerFast";
}

}  // namespace

std::vector<std::string> NamedTokens(const TokenizerHints& hints) {
    std::vector<std::string> named = {hints.bos, hints.eos, hints.unk, hints.sep,
                                      hints.pad, hints.cls, hints.mask};
    named.insert(named.end(), hints.more.begin(), hints.more.end());
    return named;
}

void AddClassTokens(TokenizerHints& hints) {
    constexpr const char* kToken = "<|endoftext|>";
    if (!hints.given.contains("bos_token")) hints.bos = kToken;
    if (!hints.given.contains("eos_token")) hints.eos = kToken;
    if (!hints.given.contains("unk_token")) hints.unk = kToken;
}

Result<std::string> JoinVocabulary(std::string_view vocab, std::string_view merges,
                                   const TokenizerHints& hints) {
    if (!IsOfGpt2(hints)) {
        return MakeError(ErrorCode::kUnsupported,
                         "the vocabulary of a tokenizer of class '{}'; Weft reads that of "
                         "GPT2Tokenizer. Add the model's tokenizer.json, which save_pretrained of "
                         "transformers writes",
                         hints.tokenizer_class.substr(0, 80));
    }
    WEFT_ASSIGN(json tokens, ParseJson(vocab));
    if (!tokens.is_object()) {
        return MakeError(ErrorCode::kCorrupt, "the file is of type {}; expected an object",
                         tokens.type_name());
    }
    WEFT_ASSIGN(json list, ReadMergeLines(merges, tokens.size()));
    const json bytes = {{"type", "ByteLevel"},
                        {"add_prefix_space", hints.add_prefix_space},
                        {"trim_offsets", true},
                        {"use_regex", true}};
    json added = AddedTokensOf(tokens, hints);
    const json joined = {
        {"model", {{"type", "BPE"}, {"vocab", std::move(tokens)}, {"merges", std::move(list)}}},
        {"added_tokens", std::move(added)},
        {"pre_tokenizer", bytes},
        {"decoder", bytes}};
    return joined.dump();
}

Result<std::unique_ptr<Tokenizer>> ReadTokenizerJson(std::string_view text,
                                                     const TokenizerHints& hints) {
    WEFT_ASSIGN(const json root, ParseJson(text));
    Fields file(root, "the file");
    const json* object = file.Find("model");
    if (object == nullptr) file.Fail("'model' is missing");
    WEFT_TRY(file.status());
    Fields model(*object, "model");
    // Old files have no type.
    const bool merges = model.Find("merges") != nullptr;
    const bool pieces = model.Find("max_input_chars_per_word") != nullptr;
    const std::string type = model.TextOr("type", merges ? "BPE" : pieces ? "WordPiece" : "");
    WEFT_TRY(model.status());

    Reading reading;
    reading.data.model = "tokenizer.json";
    if (type == "BPE") {
        WEFT_TRY(ReadBpe(model, reading));
    } else if (type == "Unigram") {
        WEFT_TRY(ReadUnigram(model, reading));
    } else if (type == "WordPiece") {
        WEFT_TRY(ReadWordPiece(model, reading));
    } else {
        return MakeError(ErrorCode::kUnsupported,
                         "model '{}' is not supported; supported: BPE, Unigram, WordPiece",
                         type.substr(0, 80));
    }
    WEFT_TRY(ReadAdded(root, reading));
    SetTypes(reading);
    WEFT_ASSIGN(const JsonDecoder decoder, ReadDecoder(root.value("decoder", json())));
    reading.data.add_space_prefix = decoder.strips_space;
    return Build(root, model, std::move(reading), hints);
}

}  // namespace weft::tokenizer

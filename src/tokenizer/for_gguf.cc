#include "tokenizer/for_gguf.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "base/utf8.h"
#include "tokenizer/hints.h"
#include "tokenizer/model.h"
#include "tokenizer/open.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;

// One name for each distinct way to split words, the most common first.
constexpr std::array kPreTokenizers = {"llama-bpe",
                                       "qwen2",
                                       "tekken",
                                       "gpt-4o",
                                       "deepseek-v3",
                                       "glm4",
                                       "smollm",
                                       "gpt-2",
                                       "qwen35",
                                       "kimi-k2",
                                       "dbrx",
                                       "deepseek-llm",
                                       "deepseek-coder",
                                       "falcon",
                                       "default",
                                       "minicpm5",
                                       "jais-2",
                                       "bailingmoe",
                                       "seed-coder",
                                       "exaone-moe",
                                       "bloom",
                                       "viking",
                                       "superbpe",
                                       "chameleon",
                                       "youtu",
                                       "afmoe",
                                       "spark2_5",
                                       "laguna",
                                       "granite-embed-multi-97m"};

// Probe texts that distinguish tokenizers: case and contractions, digits, kinds of white space,
// scripts, marks, symbols, code.
constexpr std::array kProbes = {
    "Hello world! I'm sure they'll've seen HE'S and we'Re, DON'T they'd?",
    "1 12 123 1234 12345 123456 1234567 3.14159 -42 1,234,567.89 0x1F 2024-11-20 a1b22c333",
    "  two spaces,   three,\ttab,\t\ttabs \t mixed ",
    "line\nline\r\nline\n\nline\n\n\n  indented\n    more\n\t\ttabs\n \n  \n",
    "def f(x):\n    return x**2 + 1  # comment\n\n\nif __name__ == '__main__':\n\tprint(f(3))\n",
    "int main() { return a->b[0] != c && !d || e / f; } // end/of/path http://x.y/z?q=1&r=2",
    "\xC3\x9C"
    "ber stra\xC3\x9F"
    "e, na\xC3\xAFve caf\xC3\xA9, \xC5\xBE\xC5\xA1\xC4\x8D, e\xCC\x81 a\xCC\x8A",
    "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82\xE6\x97\xA5\xE6\x9C"
    "\xAC"
    "\xE8\xAA\x9E\xE3\x81\xAE\xE3\x83\x86\xE3\x82\xB9\xE3\x83\x88 123\xE5\xB9\xB4",
    "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 \xED\x85\x8D\xEC\x8A\xA4\xED\x8A\xB8",
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xD0\xBC\xD0\xB8\xD1\x80, "
    "\xCE\x93\xCE\xB5\xCE\xB9\xCE\xAC \xD8\xA7\xD9\x84\xD8\xB3\xD9\x84\xD8\xA7\xD9\x85",
    "\xE0\xB8\xAA\xE0\xB8\xA7\xE0\xB8\xB1\xE0\xB8\xAA\xE0\xB8\x94\xE0\xB8\xB5 "
    "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87",
    "\xF0\x9F\x98\x80\xF0\x9F\x9A\x80 \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 \xE2\x80\x94 "
    "\xE2\x80\x9Cquoted\xE2\x80\x9D \xE2\x80\xA6 \xC2\xA9 \xE2\x84\xA2 \xE2\x82\xAC 5",
    "CamelCase snake_case SCREAMING_CASE kebab-case iPhone McDonald XMLHttpRequest",
    "!!! ??? ... --- === *** ((( ))) <<< >>> {}[]|\\~`@#$%^&*_+ a.b,c;d:e",
    "\xC2\xA0no-break\xC2\xA0space\xE3\x80\x80wide \xE2\x80\x83"
    "em",
    " leading",
    "trailing ",
    "",
    " ",
    "\n",
    "a",
    "the the the\n\n\nthe",
};

// Returns merges as "left right".
Result<std::vector<std::string>> MergesOf(const json& root) {
    std::vector<std::string> merges;
    const auto model = root.is_object() ? root.find("model") : root.end();
    if (!root.is_object() || model == root.end() || !model->is_object()) return merges;
    const auto list = model->find("merges");
    if (list == model->end() || !list->is_array()) return merges;
    merges.reserve(list->size());
    for (const json& entry : *list) {
        if (entry.is_string()) {
            merges.push_back(entry.get<std::string>());
        } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                   entry[1].is_string()) {
            merges.push_back(entry[0].get<std::string>() + " " + entry[1].get<std::string>());
        }
    }
    return merges;
}

// The merges of a file with ranks (tiktoken, tekken.json), as transformers converts them: in the
// order of the tokens, every two tokens that join to one.
Result<std::vector<std::string>> MergesOfRanks(const TokenizerData& data) {
    std::vector<std::string> merges;
    if (data.model != "tiktoken" && data.model != "tekken") return merges;
    WEFT_ASSIGN(const auto vocabulary, Vocabulary::Make(data));
    std::vector<PairMerge> pairs;
    for (int32_t id = 0; id < vocabulary->size(); ++id) {
        if (vocabulary->Type(id) == TokenType::kNormal) AppendSplits(*vocabulary, id, pairs);
    }
    std::ranges::sort(pairs, {}, [](const PairMerge& pair) {
        return std::tuple(pair.rank, pair.left, pair.right);
    });
    for (const PairMerge& pair : pairs) {
        merges.push_back(vocabulary->Text(pair.left) + " " + vocabulary->Text(pair.right));
    }
    return merges;
}

// Whether both tokenizers give the same ids for the composed form of a text. Many folders compose
// their input, which GGUF cannot express and readers of GGUF do not do.
bool SameIds(const Tokenizer& ours, const Tokenizer& theirs, const std::string& text) {
    const auto* given = reinterpret_cast<const utf8proc_uint8_t*>(text.c_str());
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> composed(utf8proc_NFC(given),
                                                                           std::free);
    if (composed == nullptr) return true;
    const std::string_view probe = reinterpret_cast<const char*>(composed.get());
    const EncodeOptions plain{.add_special = false};
    return ours.Encode(probe, plain) == theirs.Encode(probe, plain);
}

// Compares the texts of the vocabulary's tokens, alone and in sequence: if two pre-tokenizers
// differ, one of them splits some token. Large vocabularies are sampled.
bool SameIdsOfTokens(const Tokenizer& ours, const Tokenizer& theirs) {
    constexpr int32_t kMostSamples = 20'000;
    const int32_t step = std::max(1, theirs.vocab_size() / kMostSamples);
    std::string before;
    for (int32_t id = 0; id < theirs.vocab_size(); id += step) {
        if (theirs.Type(id) != TokenType::kNormal) continue;
        const std::string text = theirs.Decode(std::array{id});
        if (text.empty() || !IsUtf8(text)) continue;
        for (const std::string& probe : {text, before + text}) {
            if (!SameIds(ours, theirs, probe)) return false;
        }
        before = text;
    }
    return true;
}

// Compares random mixtures of the probes' characters: letters of one script beside marks, digits
// and symbols of others.
bool SameIdsOfMixtures(const Tokenizer& ours, const Tokenizer& theirs) {
    std::vector<std::string> characters;
    for (const std::string_view probe : kProbes) {
        for (const char c : probe) {
            const bool goes_on = (static_cast<uint8_t>(c) & 0xC0) == 0x80;
            goes_on ? characters.back() += c : characters.emplace_back(1, c);
        }
    }
    std::mt19937 random(20);
    for (int i = 0; i < 4000; ++i) {
        // Mostly adjacent characters, so that words appear.
        std::string text;
        while (text.size() < 24) {
            size_t at = random() % characters.size();
            for (size_t end = at + 1 + random() % 4; at < end && at < characters.size(); ++at) {
                text += characters[at];
            }
        }
        if (!SameIds(ours, theirs, text)) return false;
    }
    return true;
}

bool SameIds(const Tokenizer& ours, const Tokenizer& theirs) {
    for (const char* probe : kProbes) {
        if (!SameIds(ours, theirs, probe)) return false;
    }
    if (!SameIdsOfTokens(ours, theirs) || !SameIdsOfMixtures(ours, theirs)) return false;
    // At most a thousand markers, beside words and beside white space that they may include. (The
    // user-defined tokens of a SentencePiece file follow rules that no reader of GGUF has.)
    const bool user = theirs.data().model != "sentencepiece";
    std::string marked = "begin";
    int count = 0;
    for (int32_t id = 0; id < theirs.vocab_size() && count < 1000; ++id) {
        const TokenType type = theirs.Type(id);
        if (type != TokenType::kControl && !(user && type == TokenType::kUserDefined)) continue;
        const std::string& marker = theirs.data().tokens[static_cast<size_t>(id)];
        marked += fmt::format("{0}word{1}{0} \nx\n {0} y {0}\n", marker, id);
        ++count;
    }
    const EncodeOptions all{.add_special = true, .parse_special = true};
    return ours.Encode(marked, all) == theirs.Encode(marked, all);
}

class Search {
  public:
    Search(const Tokenizer& folder, TokenizerData base) : folder_(folder), base_(std::move(base)) {}

    // Whether a tokenizer made from `data` equals the folder's. If so, found() returns it.
    bool Try(TokenizerData data) {
        const auto made = Tokenizer::Make(data);
        if (!made.ok() || !SameIds(**made, folder_)) return false;
        found_ = std::move(data);
        return true;
    }
    bool TryBytePairs(const std::vector<std::string>& merges) {
        if (merges.empty()) return false;
        TokenizerData data = base_;
        data.model = "gpt2";
        data.merges = merges;
        data.scores.clear();
        data.add_space_prefix = false;
        for (const char* pre : kPreTokenizers) {
            data.pre = pre;
            if (Try(data)) return true;
        }
        return false;
    }
    bool TryScores(const std::vector<float>& scores) {
        if (scores.empty()) return false;
        TokenizerData data = base_;
        data.model = "llama";
        data.pre = "default";
        data.merges.clear();
        data.scores = scores;
        data.scores.resize(data.tokens.size(), 0.0f);
        for (const bool prefix : {base_.add_space_prefix, !base_.add_space_prefix}) {
            data.add_space_prefix = prefix;
            if (Try(data)) return true;
        }
        return false;
    }
    bool TryCodePoints(const std::vector<std::string>& merges) {
        if (merges.empty()) return false;
        TokenizerData data = base_;
        data.model = "gemma4";
        data.merges = merges;
        return Try(std::move(data));
    }
    TokenizerData found() && { return std::move(found_); }

  private:
    const Tokenizer& folder_;
    TokenizerData base_, found_;
};

// SentencePiece merges the highest score first, so earlier merges get higher scores.
std::vector<float> ScoresOfMerges(const TokenizerData& data,
                                  const std::vector<std::string>& merges) {
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t id = 0; id < data.tokens.size(); ++id) ids.emplace(data.tokens[id], id);
    std::vector<float> scores(data.tokens.size(), merges.empty() ? 0.0f : -1e9f);
    std::string joined;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        joined = merges[rank];
        const size_t space = joined.find(' ', 1);
        if (space == std::string::npos) continue;
        joined.erase(space, 1);
        const auto found = ids.find(joined);
        if (found == ids.end()) continue;
        scores[found->second] = std::max(scores[found->second], -static_cast<float>(rank));
    }
    return merges.empty() ? std::vector<float>() : scores;
}

// Scores of a SentencePiece file, if its tokens are the folder's first ones.
std::vector<float> ScoresOfFile(const std::string& folder, const TokenizerData& data) {
    const std::string path = folder + "/tokenizer.model";
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return data.scores;
    const auto read = OpenTokenizer(path);
    if (!read.ok() || (*read)->data().scores.empty()) return data.scores;
    return (*read)->data().scores;
}

// The folder's tokenizer data in GGUF's form, with all ids filled.
Result<TokenizerData> BaseOf(const Tokenizer& tokenizer, const std::string& folder,
                             int64_t vocabulary) {
    TokenizerData data = tokenizer.data();
    if (static_cast<int64_t>(data.tokens.size()) > vocabulary) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the tokenizer has {} tokens, but the embedding has only {} rows",
                         folder, data.tokens.size(), vocabulary);
    }
    data.types.resize(data.tokens.size(), static_cast<int32_t>(TokenType::kNormal));
    data.tokens.resize(static_cast<size_t>(vocabulary));
    data.types.resize(static_cast<size_t>(vocabulary));
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        if (!data.tokens[id].empty()) continue;
        data.tokens[id] = fmt::format("[PAD{}]", id);
        data.types[id] = static_cast<int32_t>(TokenType::kUnused);
    }
    const std::vector<int32_t> framed = tokenizer.Encode("", {.add_special = true});
    data.add_bos = !framed.empty() && framed.front() == data.bos;
    data.add_eos = !framed.empty() && framed.back() == data.eos;
    data.prefix.clear();
    data.suffix.clear();
    for (const int32_t end : data.ends) {
        if (end != data.eos && data.eot < 0) data.eot = end;
    }
    data.ends.clear();
    return data;
}

}  // namespace

Result<TokenizerData> TokenizerForGguf(const std::string& folder, int64_t vocabulary) {
    WEFT_ASSIGN(const auto tokenizer, OpenTokenizerFolder(folder));
    WEFT_ASSIGN(TokenizerData base, BaseOf(*tokenizer, folder, vocabulary));
    std::vector<std::string> merges;
    const auto text = TokenizerJsonOf(folder);
    if (text.ok()) {
        WEFT_ASSIGN(const json root, ParseJson(*text));
        WEFT_ASSIGN(merges, MergesOf(root));
    } else if (text.error().code != ErrorCode::kNotFound) {
        return text.error();
    } else {
        WEFT_ASSIGN(merges, MergesOfRanks(base));
    }
    Search search(*tokenizer, base);
    const bool found =
        search.TryScores(ScoresOfFile(folder, base)) || search.TryBytePairs(merges) ||
        search.TryScores(ScoresOfMerges(base, merges)) || search.TryCodePoints(merges);
    if (found) return std::move(search).found();
    return MakeError(
        ErrorCode::kUnsupported,
        "{}: no tokenizer kind of GGUF gives the same tokens as this folder's. Supported: "
        "byte-level BPE with a pre-tokenizer that llama.cpp supports, SentencePiece BPE",
        folder);
}

}  // namespace weft::tokenizer

#include "tokenizer/read_tekken.h"

#include <algorithm>

#include "tokenizer/base64.h"
#include "tokenizer/byte_spelling.h"
#include "tokenizer/frame.h"
#include "tokenizer/json_steps.h"
#include "tokenizer/parts.h"
#include "tokenizer/pipeline.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;

constexpr int64_t kMostSpecials = 65536;
constexpr size_t kMostTokenBytes = 1024;

// Special tokens of files without a list of them.
constexpr std::string_view kSpecials[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

// Models of these versions have no system prompts: they lack the last three of kSpecials.
constexpr std::string_view kOldVersions[] = {"v1", "v2", "v3"};

Status AddSpecials(Fields& file, std::string_view version, int64_t count, TokenizerData& data) {
    const bool old = std::ranges::find(kOldVersions, version) != std::end(kOldVersions);
    std::vector<std::string> known(std::begin(kSpecials), std::end(kSpecials) - (old ? 3 : 0));
    if (file.Find("special_tokens") != nullptr) {
        known.clear();
        for (const json& object : file.Array("special_tokens")) {
            Fields token(object, fmt::format("special_tokens[{}]", known.size()));
            const auto at = static_cast<int64_t>(known.size());
            if (token.IntOr("rank", at, at, -1) < 0) token.Fail("'rank' is missing");
            known.push_back(token.Text("token_str"));
            WEFT_TRY(token.status());
        }
        WEFT_TRY(file.status());
    }
    for (int64_t id = 0; id < count; ++id) {
        const auto at = static_cast<size_t>(id);
        data.tokens.push_back(at < known.size() ? known[at] : fmt::format("<SPECIAL_{}>", id));
        data.types.push_back(static_cast<int32_t>(TokenType::kControl));
    }
    return {};
}

Status AddRanks(const json& vocabulary, int64_t count, TokenizerData& data) {
    for (int64_t rank = 0; rank < count; ++rank) {
        Fields token(vocabulary[static_cast<size_t>(rank)], fmt::format("vocab[{}]", rank));
        if (token.IntOr("rank", rank, rank, -1) < 0) token.Fail("'rank' is missing");
        std::string bytes;
        const bool decoded = DecodeBase64(token.Text("token_bytes"), bytes);
        if (!decoded || bytes.empty() || bytes.size() > kMostTokenBytes) {
            token.Fail(
                fmt::format("'token_bytes' is not the base64 of 1 to {} bytes", kMostTokenBytes));
        }
        WEFT_TRY(token.status());
        AppendSpelled(bytes, data.tokens.emplace_back());
        data.types.push_back(static_cast<int32_t>(TokenType::kNormal));
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> ReadTekken(std::string_view text, const TokenizerHints& hints) {
    WEFT_ASSIGN(const json root, ParseJson(text));
    Fields file(root, "the file");
    const json& vocabulary = file.Array("vocab");
    const json* settings = file.Find("config");
    if (settings == nullptr) file.Fail("'config' is missing");
    WEFT_TRY(file.status());
    Fields config(*settings, "config");
    const json split = {{"type", "Split"},
                        {"pattern", {{"Regex", config.Text("pattern")}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    const int64_t specials = config.IntOr("default_num_special_tokens", 0, kMostSpecials, -1);
    if (specials < 0) config.Fail("'default_num_special_tokens' is missing");
    // (A file may have more tokens than its model.)
    const int64_t most = specials + static_cast<int64_t>(vocabulary.size());
    const int64_t size = config.IntOr("default_vocab_size", specials, most, most);
    const std::string version = config.TextOr("version", "");
    WEFT_TRY(config.status());

    TokenizerData data;
    data.model = "tekken";
    WEFT_TRY(AddSpecials(file, version, specials, data));
    WEFT_TRY(AddRanks(vocabulary, size - specials, data));
    TokenizerHints named = hints;
    for (const auto& [name, usual] :
         {std::pair(&named.bos, "<s>"), std::pair(&named.eos, "</s>"),
          std::pair(&named.unk, "<unk>"), std::pair(&named.pad, "<pad>")}) {
        if (name->empty()) *name = usual;
    }
    named.add_bos = hints.add_bos.value_or(true);
    WEFT_TRY(SetFrame(nullptr, named, data));

    TokenizerParts parts;
    WEFT_ASSIGN(parts.vocabulary, Vocabulary::Make(std::move(data)));
    const Vocabulary& words = *parts.vocabulary;
    std::vector<PairMerge> merges;
    for (auto id = static_cast<int32_t>(specials); id < words.size(); ++id) {
        AppendSplits(words, id, merges);
    }
    PipelineParts pipeline;
    WEFT_ASSIGN(JsonSplit steps, ReadPreTokenizer(split, false));
    pipeline.words = PreTokenizer(std::move(steps.steps));
    WEFT_ASSIGN(pipeline.model, MakeBytePairModel(words, merges, true));
    parts.model = MakePipeline(std::move(pipeline));
    parts.on_request = SpecialEntries(words, {TokenType::kControl});
    return Tokenizer::Assemble(std::move(parts));
}

}  // namespace weft::tokenizer

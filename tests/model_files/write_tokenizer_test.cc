// Tokenizers of folders as GGUF metadata: the result gives the folder's ids for every text of
// texts.json after a round trip through a GGUF header; tokenizers that GGUF can't express are
// refused.
#include "model_files/write_tokenizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "model_files/gguf.h"
#include "model_files/read_tokenizer.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/tiny_vocabulary.h"
#include "tokenizer/for_gguf.h"
#include "tokenizer/kept_json.h"
#include "tokenizer/open.h"
#include "tokenizer/write_json.h"

namespace weft::model_files {
namespace {

using nlohmann::json;

const std::string kFolder = support::TestData("/tokenizer/");

json WriteTokenizerReadJson(const std::string& path) {
    const auto text = ReadTextFile(path);
    EXPECT_TRUE(text.ok()) << path;
    return text.ok() ? json::parse(text.value()) : json();
}

// A round trip through the bytes of a file's header.
Result<std::unique_ptr<tokenizer::Tokenizer>> ThroughGguf(const tokenizer::TokenizerData& data) {
    GgufWriter writer;
    WriteTokenizer(data, writer);
    const std::vector<std::byte> header = writer.Header();
    WEFT_ASSIGN(GgufHeader parsed, ParseGguf(header, header.size(), "header"));
    WEFT_ASSIGN(tokenizer::TokenizerData read,
                ReadTokenizer(Metadata("header", std::move(parsed.entries))));
    return tokenizer::Tokenizer::Make(std::move(read));
}

// SentencePiece's own user-defined tokens follow its rules for spaces; in GGUF files they split the
// text, with a space after them, in all programs that read such files.
bool HoldsUserToken(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
    const tokenizer::TokenizerData& data = tokenizer.data();
    for (size_t id = 0; id < data.tokens.size() && data.model == "sentencepiece"; ++id) {
        const bool user =
            data.types[id] == static_cast<int32_t>(tokenizer::TokenType::kUserDefined);
        if (user && text.find(data.tokens[id]) != std::string::npos) return true;
    }
    return false;
}

// GGUF can't express that a tokenizer composes its text (NFC).
bool IsComposed(const std::string& text) {
    const auto* given = reinterpret_cast<const utf8proc_uint8_t*>(text.c_str());
    utf8proc_uint8_t* composed = utf8proc_NFC(given);
    const bool same = composed != nullptr && text == reinterpret_cast<const char*>(composed);
    std::free(composed);
    return same;
}

// The result for a folder, as "model pre"; checks that it gives the folder's ids.
std::string Found(const std::string& path, const std::vector<std::string>& texts) {
    const auto folder = tokenizer::OpenTokenizerFolder(path);
    EXPECT_TRUE(folder.ok());
    const int64_t vocabulary = (*folder)->vocab_size() + 7;
    const auto data = tokenizer::TokenizerForGguf(path, vocabulary);
    if (!data.ok()) {
        EXPECT_EQ(data.error().code, ErrorCode::kUnsupported);
        return "refused";
    }
    EXPECT_EQ(static_cast<int64_t>(data->tokens.size()), vocabulary);
    EXPECT_EQ(tokenizer::TokenizerForGguf(path, 3).error().code, ErrorCode::kCorrupt);
    const auto ours = ThroughGguf(*data);
    EXPECT_TRUE(ours.ok());
    for (const std::string& text : texts) {
        if (!ours.ok() || HoldsUserToken(**folder, text) || !IsComposed(text)) continue;
        for (const bool special : {false, true}) {
            const tokenizer::EncodeOptions options{.add_special = special,
                                                   .parse_special = special};
            EXPECT_EQ((*ours)->Encode(text, options), (*folder)->Encode(text, options))
                << json(text);
        }
    }
    return data->model + " " + data->pre;
}

// The golden folders have added tokens that no model has (words that only match when separate, ...)
// and that GGUF cannot express: most are refused, and none gives other ids.
TEST(TokenizerToGguf, GivesTheFoldersIdsOrIsRefused) {
    const auto texts =
        WriteTokenizerReadJson(kFolder + "texts.json").get<std::vector<std::string>>();
    for (const auto& entry : std::filesystem::directory_iterator(kFolder + "files")) {
        SCOPED_TRACE(entry.path().filename().string());
        const std::string found = Found(entry.path(), texts);
        const std::string name = entry.path().filename().string();
        if (name == "sp_bpe") {
            EXPECT_EQ(found, "llama default");
        }
        // (Few merges of Kimi's file join Han, which is what its expression splits otherwise.)
        if (name == "tekken" || name == "tiktoken_kimi") {
            EXPECT_EQ(found, name == "tekken" ? "gpt2 tekken" : "gpt2 gpt-4o");
        }
        if (name == "unigram" || name == "words" || name == "cuts") {
            EXPECT_EQ(found, "refused");
        }
    }
}

// The same folders with added tokens as in real models: markers. qwen2's few merges include none of
// two digits, so llama-bpe, which splits numbers into threes, gives the same ids.
TEST(TokenizerToGguf, NamesThePreTokenizer) {
    const auto texts =
        WriteTokenizerReadJson(kFolder + "texts.json").get<std::vector<std::string>>();
    const std::map<std::string, std::string> expected = {{"deepseek_v3", "gpt2 deepseek-v3"},
                                                         {"gpt4o", "gpt2 gpt-4o"},
                                                         {"llama3", "gpt2 llama-bpe"},
                                                         {"qwen2", "gpt2 llama-bpe"}};
    for (const auto& [name, kind] : expected) {
        SCOPED_TRACE(name);
        json file = WriteTokenizerReadJson(kFolder + "files/" + name + "/tokenizer.json");
        json markers = json::array();
        for (const json& token : file["added_tokens"]) {
            if (token["special"] == true) markers.push_back(token);
        }
        file["added_tokens"] = markers;
        const test::TempDir dir;
        const std::string text = file.dump();
        ASSERT_TRUE(WriteFile(dir / "tokenizer.json", std::as_bytes(std::span(text))).ok());
        EXPECT_EQ(Found(dir.path(), texts), kind);
    }
}

// Added tokens that take white space or must be words of their own: ids by tokenizers 0.23.1, of
// the folder, of the GGUF file, and of a folder made from it.
TEST(TokenizerToGguf, KeepsTheFlagsOfAddedTokens) {
    json file = WriteTokenizerReadJson(kFolder + "files/llama3/tokenizer.json");
    file["added_tokens"] = json::array();
    const auto add = [&](int id, const char* text, bool special, std::vector<std::string> flags) {
        json token = {{"id", id}, {"content", text}, {"special", special}};
        for (const std::string& flag : flags) token[flag] = true;
        file["added_tokens"].push_back(token);
    };
    add(309, "the", false, {"single_word"});
    add(420, "<|user|>", true, {"rstrip"});
    add(421, "<|end|>", true, {"rstrip"});
    add(422, "<mask>", true, {"lstrip"});
    add(423, "<x>", false, {"lstrip", "rstrip"});
    add(424, "[S]", true, {"single_word"});
    const test::TempDir dir;
    const auto write = [&](const std::string& text) {
        EXPECT_TRUE(WriteFile(dir / "tokenizer.json", std::as_bytes(std::span(text))).ok());
        return tokenizer::OpenTokenizerFolder(dir.path());
    };
    const auto folder = write(file.dump());
    ASSERT_TRUE(folder.ok()) << folder.error().message;
    const auto data = tokenizer::TokenizerForGguf(dir.path(), 432);
    ASSERT_TRUE(data.ok()) << data.error().message;
    EXPECT_EQ(data->pre, "llama-bpe");
    const auto ours = ThroughGguf(*data);
    ASSERT_TRUE(ours.ok()) << ours.error().message;
    const auto exported = write(tokenizer::TokenizerJson(*data).value());
    ASSERT_TRUE(exported.ok()) << exported.error().message;
    const std::pair<const char*, std::vector<int32_t>> cases[] = {
        {"<|user|>\nhi<|end|>\n<|user|> \n you", {420, 71, 72, 421, 420, 88, 268}},
        {"a <mask> b", {64, 422, 220, 65}},
        {"a <x> \n b", {64, 423, 65}},
        {"x[S]y [S] z[S]", {87, 58, 50, 60, 88, 220, 424, 220, 89, 58, 50, 60}},
        {"the them the", {309, 258, 76, 220, 309}}};
    for (const auto& [text, ids] : cases) {
        for (const auto* tokenizer : {&*folder, &*ours, &*exported}) {
            EXPECT_EQ((*tokenizer)->Encode(text, {.add_special = false, .parse_special = true}),
                      ids)
                << text;
        }
    }
}

// As in llama.cpp: files of other converters do not have Weft's keys.
TEST(ReadTokenizer, MarkersOfPhi3TakeTheWhiteSpaceBehindThem) {
    for (const char* last : {"<|placeholder1|>", "<|other|>"}) {
        tokenizer::TokenizerData data = tokenizer::TinySpm();
        for (const char* marker : {"<|endoftext|>", "<|user|>", last}) {
            data.tokens.push_back(marker);
            data.types.push_back(static_cast<int32_t>(tokenizer::TokenType::kControl));
            data.scores.push_back(0);
        }
        const auto read = ThroughGguf(data);
        ASSERT_TRUE(read.ok()) << read.error().message;
        const tokenizer::EncodeOptions options{.add_special = false, .parse_special = true};
        const auto encode = [&](const char* text) { return (*read)->Encode(text, options); };
        const bool phi = std::string_view(last) == "<|placeholder1|>";
        EXPECT_EQ(encode("<|user|>\n") == encode("<|user|>"), phi);
        EXPECT_NE(encode("<|endoftext|>\n"), encode("<|endoftext|>"));
        // A file with the keys states everything.
        data.lstrip = {static_cast<int32_t>(data.tokens.size()) - 2};
        const auto told = ThroughGguf(data);
        ASSERT_TRUE(told.ok()) << told.error().message;
        EXPECT_NE((*told)->Encode("<|user|>\n", options), encode("<|user|>"));
        EXPECT_EQ((*told)->Encode("\n<|user|>", options), encode("<|user|>"));
    }
}

// The normalizer of the folder removes the marker before its text is searched for markers.
TEST(TokenizerToGguf, RefusesMarkersThatAreFoundElsewhere) {
    json file = WriteTokenizerReadJson(kFolder + "files/llama3/tokenizer.json");
    file["added_tokens"] =
        json::array({{{"id", 420}, {"content", "<x>"}, {"special", false}, {"normalized", true}}});
    file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "<x>"}}}, {"content", ""}};
    const test::TempDir dir;
    const std::string text = file.dump();
    ASSERT_TRUE(WriteFile(dir / "tokenizer.json", std::as_bytes(std::span(text))).ok());
    const auto data = tokenizer::TokenizerForGguf(dir.path(), 432);
    ASSERT_FALSE(data.ok());
    EXPECT_EQ(data.error().code, ErrorCode::kUnsupported);
}

std::string ReadWhole(const std::string& path) {
    const auto text = ReadTextFile(path);
    EXPECT_TRUE(text.ok()) << path;
    return text.ok() ? *text : "";
}

Result<std::unique_ptr<tokenizer::Tokenizer>> LoadFile(const GgufWriter& writer) {
    const test::TempDir dir;
    EXPECT_TRUE(WriteFile(dir / "kept.gguf", writer.File()).ok());
    WEFT_ASSIGN(const Gguf file, Gguf::Open(dir / "kept.gguf"));
    return LoadTokenizer(file);
}

// Tokenizers that GGUF has no name for are stored unchanged, and give the folder's ids.
TEST(KeptTokenizer, GivesTheFoldersIds) {
    const auto texts =
        WriteTokenizerReadJson(kFolder + "texts.json").get<std::vector<std::string>>();
    for (const char* name : {"unigram", "words", "cuts", "gemma", "falcon"}) {
        SCOPED_TRACE(name);
        const std::string path = kFolder + "files/" + name;
        const auto kept = tokenizer::ReadKeptJson(path);
        ASSERT_TRUE(kept.ok()) << kept.error().message;
        EXPECT_EQ(kept->json, ReadWhole(path + "/tokenizer.json"));
        const auto folder = tokenizer::OpenTokenizerFolder(path);
        ASSERT_TRUE(folder.ok());
        GgufWriter writer;
        WriteKeptTokenizer(*kept, (*folder)->data(), writer);
        const auto loaded = LoadFile(writer);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        for (const std::string& text : texts) {
            for (const bool special : {false, true}) {
                const tokenizer::EncodeOptions options{.parse_special = special};
                EXPECT_EQ((*loaded)->Encode(text, options), (*folder)->Encode(text, options))
                    << json(text);
            }
        }
        const tokenizer::TokenizerData &ours = (*loaded)->data(), &theirs = (*folder)->data();
        EXPECT_EQ(ours.bos, theirs.bos);
        EXPECT_EQ(ours.eos, theirs.eos);
        EXPECT_EQ(ours.ends, theirs.ends);
        EXPECT_EQ(ours.prefix, theirs.prefix);
    }
}

// The file's own tokenizer kind takes precedence if it is known.
TEST(KeptTokenizer, IsUsedIfTheKindIsUnknown) {
    const std::string words = ReadWhole(kFolder + "files/words/tokenizer.json");
    const auto with = [&](const char* model, const char* pre, const std::string& text) {
        GgufWriter writer;
        writer.String("tokenizer.ggml.model", model);
        writer.String("tokenizer.ggml.pre", pre);
        const tokenizer::TokenizerData data = tokenizer::TinyBytePair();
        writer.Strings("tokenizer.ggml.tokens", data.tokens);
        writer.I32s("tokenizer.ggml.token_type", data.types);
        writer.Strings("tokenizer.ggml.merges", data.merges);
        writer.String(kKeptJsonKey, text);
        return LoadFile(writer);
    };
    const auto own = with("gpt2", "gpt-2", "{ broken");
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_EQ((*own)->vocab_size(), 259);
    for (const auto& [model, pre] :
         {std::pair("none", ""), std::pair("gpt2", "of-next-year"), std::pair("rwkv", "x")}) {
        const auto kept = with(model, pre, words);
        ASSERT_TRUE(kept.ok()) << kept.error().message;
        EXPECT_NE((*kept)->vocab_size(), 259);
        const auto broken = with(model, pre, words.substr(0, words.size() / 2));
        ASSERT_FALSE(broken.ok());
        EXPECT_EQ(broken.error().code, ErrorCode::kCorrupt);
        for (const char* word : {"kept.gguf", "tokenizer.huggingface.json", "cut short"}) {
            EXPECT_NE(broken.error().message.find(word), std::string::npos)
                << broken.error().message;
        }
    }
}

TEST(KeptTokenizer, HostileFiles) {
    const auto refused = [](const GgufWriter& writer, const char* words) {
        const auto loaded = LoadFile(writer);
        ASSERT_FALSE(loaded.ok()) << words;
        EXPECT_NE(loaded.error().message.find(words), std::string::npos) << loaded.error().message;
    };
    const json words = WriteTokenizerReadJson(kFolder + "files/words/tokenizer.json");
    const auto of = [&](const json& file, const std::string& config) {
        GgufWriter writer;
        writer.String(kKeptJsonKey, file.dump());
        writer.String("tokenizer.weft.tokenizer_config", config);
        return writer;
    };
    EXPECT_TRUE(LoadFile(of(words, "{}")).ok());
    GgufWriter number;
    number.U32(kKeptJsonKey, 7);
    refused(number, "tokenizer.huggingface.json");
    refused(of(words, "[1"), "tokenizer_config.json");
    refused(of(words, "[1]"), "tokenizer_config.json");
    json twice = words;
    auto first = twice["model"]["vocab"].begin();
    const json id = *first;
    *++first = id;
    refused(of(twice, "{}"), "both have the id");
    json hole = words;
    hole["model"]["vocab"]["far"] = 15'000'000;
    refused(of(hole, "{}"), "15000000");
    json near = words;  // a small gap: its ids have no token
    near["model"]["vocab"]["near"] = 3000;
    const auto holes = LoadFile(of(near, "{}"));
    ASSERT_TRUE(holes.ok()) << holes.error().message;
    EXPECT_EQ((*holes)->vocab_size(), 3001);
    EXPECT_EQ((*holes)->Piece(2999), "");
    // The value is within the size limit, but has only blanks.
    GgufWriter large;
    large.String(kKeptJsonKey, std::string(200 << 20, ' '));
    refused(large, "not JSON");
}

// llama.cpp ignores them, too; converters write the number of tokens for a token that was removed.
TEST(ReadTokenizer, IgnoresIdsBeyondTheVocabulary) {
    for (const char* model : {"gpt2", "llama"}) {
        tokenizer::TokenizerData data =
            model == std::string("gpt2") ? tokenizer::TinyBytePair({"h e"}) : tokenizer::TinySpm();
        const auto usual = ThroughGguf(data);
        ASSERT_TRUE(usual.ok()) << usual.error().message;
        data.bos = data.eos = data.eot = data.unk = data.pad =
            static_cast<int32_t>(data.tokens.size());
        const auto read = ThroughGguf(data);
        ASSERT_TRUE(read.ok()) << read.error().message;
        const bool spm = data.model == "llama";
        EXPECT_EQ((*read)->data().bos, spm ? 1 : -1);
        EXPECT_EQ((*read)->data().eos, spm ? 2 : -1);
        EXPECT_EQ((*read)->data().unk, spm ? 0 : -1);
        EXPECT_EQ((*read)->data().pad, -1);
        EXPECT_EQ((*read)->Encode("hello"), (*usual)->Encode("hello"));
    }
}

}  // namespace
}  // namespace weft::model_files

// Tokenizers from files: tokenizer.json, tiktoken, SentencePiece. Golden ids come from Hugging Face
// tokenizers, tiktoken and sentencepiece (tools/make_tokenizer_golden.py), for the texts of
// texts.json; the files were trained on a page of text.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "tokenizer/hints.h"
#include "tokenizer/open.h"
#include "tokenizer/read_json.h"
#include "tokenizer/read_tiktoken.h"
#include "tokenizer/regex.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kFolder = support::TestData("/tokenizer/");

json Read(const std::string& path) {
    const auto text = ReadTextFile(path);
    EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
    return text.ok() ? json::parse(text.value()) : json();
}

// Python's words for non-finite numbers, as transformers writes them beside a tokenizer (Falcon-H1,
// Nemotron-H).
TEST(HintFiles, MayHaveNonFiniteNumbers) {
    for (const char* name : kHintFiles) {
        const test::TempDir dir;
        fs::copy(kFolder + "files/llama3", dir.path());
        std::ofstream(dir / name) << R"({"limit": [0.0, Infinity, -Infinity, NaN], "a": "\"NaN"})";
        const auto opened = OpenTokenizerFolder(dir.path());
        EXPECT_TRUE(opened.ok()) << name << ": " << opened.error().message;
    }
}

// Files of GPT2Tokenizer give the ids of the same tokenizer.json, and obey add_bos_token.
TEST(VocabularyFiles, AreThoseOfTheJson) {
    const json whole = Read(kFolder + "files/gpt2/tokenizer.json");
    const auto expected = OpenTokenizerFolder(kFolder + "files/gpt2");
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    const test::TempDir dir;
    std::ofstream(dir / "vocab.json") << whole["model"]["vocab"];
    std::ofstream merges(dir / "merges.txt");
    merges << "#version: 0.2\n";
    for (const json& pair : whole["model"]["merges"]) {
        merges << pair[0].get<std::string>() << " " << pair[1].get<std::string>() << "\n";
    }
    merges.close();
    json config = {{"tokenizer_class", "GPT2Tokenizer"},
                   {"add_prefix_space", true},
                   {"bos_token", "A"},
                   {"eos_token", {{"content", "<|im_end|>"}, {"__type", "AddedToken"}}}};
    for (const json& token : whole["added_tokens"]) {
        config["added_tokens_decoder"][std::to_string(token["id"].get<int>())] = token;
    }
    const int32_t bos = whole["model"]["vocab"]["A"];
    for (const bool add_bos : {false, true}) {
        config["add_bos_token"] = add_bos;
        std::ofstream(dir / "tokenizer_config.json") << config;
        const auto opened = OpenTokenizerFolder(dir.path());
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        for (const std::string text : {"the cat", " and the tool<|im_end|>", "1234 \n\n x<s>"}) {
            std::vector<int32_t> ids = (*expected)->Encode(text);
            EXPECT_EQ((*opened)->Encode(text, {.add_special = false}), ids) << text;
            if (add_bos) ids.insert(ids.begin(), bos);
            EXPECT_EQ((*opened)->Encode(text, {.add_special = true}), ids) << text;
        }
    }
    // If the class is missing, the model type in config.json determines it.
    config.erase("tokenizer_class");
    std::ofstream(dir / "tokenizer_config.json") << config;
    EXPECT_FALSE(OpenTokenizerFolder(dir.path()).ok());
    std::ofstream(dir / "config.json") << R"({"model_type": "opt"})";
    EXPECT_TRUE(OpenTokenizerFolder(dir.path()).ok());
    // Older folders name added tokens in a file of their own.
    config.erase("added_tokens_decoder");
    std::ofstream(dir / "tokenizer_config.json") << config;
    std::ofstream(dir / "added_tokens.json") << R"({"<tool>": 420, "<|im_end|>": 421})";
    const auto older = OpenTokenizerFolder(dir.path());
    ASSERT_TRUE(older.ok()) << older.error().message;
    EXPECT_EQ((*older)->Encode("<tool>", {.add_special = false}), std::vector<int32_t>{420});
    EXPECT_EQ((*older)->Encode("<|im_end|>", {.add_special = false, .parse_special = true}),
              std::vector<int32_t>{421});
    for (const char* broken : {"[1]", "{", R"({"a": -1})", R"({"a": "b"})", R"({"a": 99999999})"}) {
        std::ofstream(dir / "added_tokens.json") << broken;
        EXPECT_FALSE(OpenTokenizerFolder(dir.path()).ok()) << broken;
    }
    fs::remove(dir / "added_tokens.json");
    config["tokenizer_class"] = "BioGptTokenizer";
    std::ofstream(dir / "tokenizer_config.json") << config;
    const auto refused = OpenTokenizerFolder(dir.path());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("'BioGptTokenizer'"), std::string::npos);
}

// The ids of GPT2Tokenizer of transformers 5.24: the class has tokens that no file names
// (DialoGPT's files name none), and a named token that the vocabulary lacks gets the next id.
TEST(VocabularyFiles, HaveTheTokensOfTheirClass) {
    const json model = Read(kFolder + "files/gpt2/tokenizer.json")["model"];
    json with = model["vocab"];
    with["<|endoftext|>"] = with.size();
    const json none = {{"model_max_length", 1024}};
    const json named = {{"pad_token", "[PAD]"},
                        {"mask_token", "<m>"},
                        {"sep_token", {{"content", "<sep>"}, {"__type", "AddedToken"}}},
                        {"extra_special_tokens", {"<x>", "<y>"}}};
    const json nulls = {{"bos_token", nullptr}, {"eos_token", nullptr}, {"unk_token", nullptr}};
    struct Case {
        json vocabulary, config;
        const char* text;
        std::vector<int32_t> ids;
    };
    const Case cases[] = {
        {with, none, "the<|endoftext|>cat", {83, 257, 420, 66, 64, 83}},
        {model["vocab"], none, "the<|endoftext|>cat", {83, 257, 420, 66, 64, 83}},
        {with, none, "<y>", {27, 88, 29}},
        {with, named, "the[PAD]cat<|endoftext|>", {83, 257, 422, 66, 64, 83, 420}},
        {with, named, "<x><y><m><sep>", {424, 425, 423, 421}},
        {with, nulls, "<|endoftext|>", {27, 91, 282, 67, 78, 69, 283, 87, 83, 91, 29}}};
    for (const auto& [vocabulary, config, text, ids] : cases) {
        const test::TempDir dir;
        std::ofstream(dir / "config.json") << R"({"model_type": "gpt2"})";
        std::ofstream(dir / "tokenizer_config.json") << config;
        std::ofstream(dir / "vocab.json") << vocabulary;
        std::ofstream merges(dir / "merges.txt");
        for (const json& pair : model["merges"]) {
            merges << pair[0].get<std::string>() << " " << pair[1].get<std::string>() << "\n";
        }
        merges.close();
        const auto opened = OpenTokenizerFolder(dir.path());
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        EXPECT_EQ((*opened)->Encode(text, {.add_special = false, .parse_special = true}), ids)
            << config << text;
    }
}

// Broken files are errors, and cost no more than their size.
TEST(VocabularyFiles, AreHostile) {
    TokenizerHints hints;
    hints.tokenizer_class = "GPT2Tokenizer";
    const json model = Read(kFolder + "files/gpt2/tokenizer.json")["model"];
    json vocab = model["vocab"];
    const json& pair = model["merges"][0];
    const std::string good = vocab.dump();
    const std::string merge = pair[0].get<std::string>() + " " + pair[1].get<std::string>();
    const auto error = [&](const std::string& tokens, const std::string& merges) {
        const auto joined = JoinVocabulary(tokens, merges, hints);
        if (!joined.ok()) return joined.error().message;
        const auto made = ReadTokenizerJson(*joined, hints);
        return made.ok() ? std::string() : made.error().message;
    };
    EXPECT_EQ(error(good, ""), "");
    EXPECT_EQ(error(good, std::string(10'000'000, '\n')), "");
    EXPECT_EQ(error(good, merge + "\n" + merge + "\r\n" + merge), "");
    for (size_t cut = 0; cut < good.size(); cut += 101) {
        EXPECT_NE(error(good.substr(0, cut), merge), "") << cut;
    }
    const std::pair<std::string, const char*> merges[] = {
        {merge + "\xff\n", "UTF-8"},
        {std::string(1'000'000, 'a'), "merges[0]"},
        {merge + "\nt\n", "merges[1]"},
        {"t nosuchtoken", "merges[0]"},
        {std::string(1, '\0') + " h", "merges[0]"}};
    for (const auto& [text, word] : merges) {
        EXPECT_NE(error(good, text).find(word), std::string::npos) << error(good, text);
    }
    std::string many;
    for (size_t i = 0; i <= 16 * vocab.size(); ++i) many += merge + "\n";
    EXPECT_NE(error(good, many).find("merges.txt has over"), std::string::npos);
    for (const json& id : {json(-1), json("1"), json(1.5), json(int64_t{1} << 40), json()}) {
        vocab["t"] = id;
        EXPECT_NE(error(vocab.dump(), "").find("'t' has no id"), std::string::npos) << id;
    }
    vocab["t"] = vocab["h"];
    EXPECT_NE(error(vocab.dump(), "").find("both have the id"), std::string::npos);
    for (const char* other : {"[]", "1", "\"a\"", "null", ""}) EXPECT_NE(error(other, ""), "");
}

// A link to a missing file is not an absent file.
TEST(TokenizerFolders, NameLinksToMissingFiles) {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json"}) {
        const test::TempDir dir;
        fs::copy(kFolder + "files/gpt2", dir.path());
        std::ofstream(dir / "merges.txt") << "";
        fs::remove(dir / name);
        fs::create_symlink("../blobs/gone", dir / name);
        const auto opened = OpenTokenizerFolder(dir.path());
        if (std::string_view(name) == "vocab.json") {  // not read beside tokenizer.json
            EXPECT_TRUE(opened.ok());
            continue;
        }
        ASSERT_FALSE(opened.ok()) << name;
        EXPECT_NE(opened.error().message.find(std::string(name) + " is a link to ../blobs/gone"),
                  std::string::npos)
            << opened.error().message;
    }
}

// Ids of another model's file would be wrong without an error.
TEST(TiktokenFiles, MustBeOfTheModel) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto said = [&](size_t ranks, const json& config) -> std::string {
        std::string text;
        for (size_t rank = 0; rank < ranks; ++rank) {
            // The 256 bytes, then made-up tokens of three bytes, in base64.
            const size_t bits = rank < 256 ? rank << 16 : (size_t{1} << 23) + rank;
            for (int shift = 18; shift >= (rank < 256 ? 12 : 0); shift -= 6) {
                text += kDigits[bits >> shift & 63];
            }
            text += " " + std::to_string(rank) + "\n";
        }
        TokenizerHints hints;
        EXPECT_TRUE(AddHints("config.json", config, hints).ok());
        const auto made = ReadTiktoken(text, hints);
        return made.ok() ? "" : made.error().message;
    };
    EXPECT_EQ(said(500, {{"model_type", "qwen3"}}), "");
    EXPECT_EQ(said(500, {{"model_type", "qwen3"}, {"vocab_size", 512}}), "");
    EXPECT_NE(said(500, {{"model_type", "qwen3"}, {"vocab_size", 499}}).find("499 rows"),
              std::string::npos);
    EXPECT_NE(said(500, {{"model_type", "qwen3"}, {"vocab_size", 151936}}).find("151936 rows"),
              std::string::npos);
    EXPECT_NE(said(500, {{"model_type", "kimi_k25"}, {"text_config", {{"vocab_size", 600}}}})
                  .find("600 rows"),
              std::string::npos);
    EXPECT_NE(said(128000, {{"model_type", "qwen3"}}).find("as llama has"), std::string::npos);
    EXPECT_EQ(said(200000, {{"model_type", "llama4"}, {"vocab_size", 202048}}), "");
    EXPECT_NE(said(200000, {{"model_type", "llama"}}).find("as llama4 has"), std::string::npos);
    // Qwen3.5 splits words by another rule than Qwen, with another number of tokens.
    EXPECT_NE(said(248044, {{"model_type", "qwen3_5"}, {"vocab_size", 248320}})
                  .find("its pre-tokenizer is unknown"),
              std::string::npos);
}

// Llama 4 splits words before capitals, Llama 3 does not.
TEST(TiktokenFiles, OfOneModelTypeMaySplitWordsDifferently) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t byte = 0; byte < 256; ++byte) {
        text += {kDigits[byte >> 2], kDigits[byte << 4 & 63]};
        text += " " + std::to_string(byte) + "\n";
    }
    text += "b1c 256\n";  // "oW"
    const std::pair<const char*, size_t> kCases[] = {
        {"llama", 1}, {"llama4_text", 2}, {"gpt_oss", 2}};
    for (const auto& [type, ids] : kCases) {
        TokenizerHints hints;
        hints.model_type = type;
        const auto made = ReadTiktoken(text, hints);
        ASSERT_TRUE(made.ok()) << made.error().message;
        EXPECT_EQ((*made)->Encode("oW", {.add_special = false}).size(), ids) << type;
    }
}

class GoldenFiles : public testing::TestWithParam<std::string> {};

TEST_P(GoldenFiles, IdsOfHardTexts) {
    const std::string folder = kFolder + "files/" + GetParam();
    const auto tokenizer = OpenTokenizerFolder(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const auto texts = Read(kFolder + "texts.json").get<std::vector<std::string>>();
    const auto ids = Read(folder + "/ids.json").get<std::vector<std::vector<int32_t>>>();
    ASSERT_GE(texts.size(), 200u);
    ASSERT_EQ(texts.size(), ids.size());
    const bool parse = !fs::exists(folder + "/tokenizer.model");
    for (size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ((*tokenizer)->Encode(texts[i], {.add_special = false, .parse_special = parse}),
                  ids[i])
            << GetParam() << ", text " << i << ": " << json(texts[i]);
    }
}

std::vector<std::string> Folders() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(kFolder + "files")) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenFiles, testing::ValuesIn(Folders()),
                         [](const auto& folder) { return folder.param; });

// XLM-RoBERTa's ids differ from those in its SentencePiece file.
TEST(SentencePieceFiles, OfXlmRobertaAreRefused) {
    const test::TempDir dir;
    fs::copy_file(kFolder + "files/sp_unigram/tokenizer.model", dir / "sentencepiece.bpe.model");
    EXPECT_TRUE(OpenTokenizerFolder(dir.path()).ok());
    std::ofstream(dir / "config.json") << R"({"model_type": "xlm-roberta"})";
    const auto opened = OpenTokenizerFolder(dir.path());
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().message.find("tokenizer.json"), std::string::npos);
}

// Spaces stand in front of tokens that begin a word, except for punctuation.
TEST(WordPieceFiles, DecodeAsHuggingFace) {
    const auto opened = OpenTokenizerFolder(kFolder + "files/bert_cased");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const auto ids = (*opened)->Encode("The language, of (words). Why?", {.add_special = false});
    EXPECT_EQ((*opened)->Decode(ids), "The language, of ( words ). Why?");
}

// GGUF files mark the tokens that begin a word, and not those that continue one.
TEST(WordPieceFiles, AsGguf) {
    const auto opened = OpenTokenizerFolder(kFolder + "files/bert");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const int32_t count = (*opened)->vocab_size();
    TokenizerData data;
    data.model = "bert";
    for (int32_t id = 0; id < count; ++id) {
        const std::string& text = (*opened)->data().tokens[static_cast<size_t>(id)];
        const bool special = (*opened)->Type(id) != TokenType::kNormal;
        const std::string mark = special ? "" : "\u2581";
        data.tokens.push_back(text.starts_with("##") ? text.substr(2) : mark + text);
        data.types.push_back(static_cast<int32_t>((*opened)->Type(id)));
    }
    data.unk = (*opened)->Find("[UNK]");
    data.add_space_prefix = true;
    const auto made = Tokenizer::Make(std::move(data));
    ASSERT_TRUE(made.ok()) << made.error().message;
    for (const char* text : {"A language, of (words). Why?", "naïve Café 1234", "", "日本 ab"}) {
        const auto ids = (*opened)->Encode(text, {.add_special = false});
        EXPECT_EQ((*made)->Encode(text, {.add_special = false}), ids) << text;
        EXPECT_EQ((*made)->Decode(ids), (*opened)->Decode(ids)) << text;
    }
}

TEST(WordPieceFiles, NeedAnUnknownToken) {
    json file = Read(kFolder + "files/bert/tokenizer.json");
    file["model"]["unk_token"] = "[GONE]";
    const auto made = ReadTokenizerJson(file.dump(), {});
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find("no unknown token"), std::string::npos);
}

// A small valid byte-level tokenizer.json, to be modified.
json SmallJson() {
    json vocab = json::object();
    for (int byte = 0x21; byte < 0x7F; ++byte)
        vocab[std::string(1, static_cast<char>(byte))] = byte;
    vocab["\u0120"] = 0;
    vocab["ab"] = 1;
    vocab["abc"] = 2;
    return {
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array({"a b", "ab c"})}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"added_tokens", json::array({{{"id", 3}, {"content", "<s>"}, {"special", true}},
                                      {{"id", 4}, {"content", "<t>"}, {"special", false}}})}};
}

TEST(TokenizerJson, Works) {
    const auto made = ReadTokenizerJson(SmallJson().dump(), {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ((*made)->Encode("abc ab<t><s>"), (std::vector<int32_t>{2, 0, 1, 4, '<', 's', '>'}));
    EXPECT_EQ((*made)->Encode("<s>", {.parse_special = true}), (std::vector<int32_t>{3}));
    EXPECT_EQ((*made)->Decode(std::vector<int32_t>{2, 0, 1, 4, 3}), "abc ab<t>");
}

// Words of the pre-tokenizer "Whitespace" in "a", a character, "b": one or two of each general
// category, joiners, numbers and white space (tokenizers 0.22.1).
TEST(TokenizerJson, WhitespaceSplitsAsRust) {
    constexpr std::pair<uint32_t, size_t> kWords[] = {
        {0x7F, 3},   {0x8F, 3},    {0xAD, 3},   {0x206A, 3},  {0x61, 1},   {0x2D04, 1},
        {0x2B0, 1},  {0x2091, 1},  {0xAA, 1},   {0x9D4A, 1},  {0x1C5, 1},  {0x1F9B, 1},
        {0x41, 1},   {0x2C69, 1},  {0x903, 1},  {0xA8BB, 1},  {0x488, 1},  {0x20E0, 1},
        {0x300, 1},  {0x1DF8, 1},  {0x30, 1},   {0xA9F0, 1},  {0x16EE, 1}, {0x10341, 1},
        {0xB2, 3},   {0x109DE, 3}, {0x5F, 1},   {0xFE34, 1},  {0x2D, 3},   {0x2E3A, 3},
        {0x29, 3},   {0x29FD, 3},  {0xBB, 3},   {0x2E05, 3},  {0xAB, 3},   {0x2E02, 3},
        {0x21, 3},   {0x2E4A, 3},  {0x28, 3},   {0x29DA, 3},  {0x24, 3},   {0x20AF, 3},
        {0x5E, 3},   {0x1FDF, 3},  {0x2B, 3},   {0x2941, 3},  {0xA6, 3},   {0x1D158, 3},
        {0x2028, 2}, {0x2029, 2},  {0x20, 2},   {0x2005, 2},  {0xBD, 3},   {0x200C, 1},
        {0x200D, 1}, {0x2160, 1},  {0x24D0, 1}, {0x1F130, 1}, {0x345, 1},  {0x85, 2},
        {0xA0, 2},   {0x203F, 1},  {0x200B, 3}};
    json vocab = {{"[UNK]", 0}};
    const json file = {{"model",
                        {{"type", "WordPiece"},
                         {"vocab", vocab},
                         {"unk_token", "[UNK]"},
                         {"continuing_subword_prefix", "##"},
                         {"max_input_chars_per_word", 100}}},
                       {"pre_tokenizer", {{"type", "Whitespace"}}}};
    const auto made = ReadTokenizerJson(file.dump(), {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    for (const auto& [point, words] : kWords) {
        const auto unit = [&](uint32_t lead, int shift) {
            return static_cast<char>(lead | (point >> shift & (lead == 0x80 ? 0x3F : 0x7F)));
        };
        std::string text = "a";
        if (point >= 0x10000) text += unit(0xF0, 18);
        if (point >= 0x800) text += unit(point >= 0x10000 ? 0x80 : 0xE0, 12);
        if (point >= 0x80) text += unit(point >= 0x800 ? 0x80 : 0xC0, 6);
        text += unit(point >= 0x80 ? 0x80 : 0, 0);
        EXPECT_EQ((*made)->Encode(text + "b").size(), words) << std::hex << point;
    }
}

// Added tokens are no pieces of a Unigram model: where they may not match, the text is split into
// the model's own pieces (tokenizers 0.23.3).
TEST(TokenizerJson, UnigramHasItsOwnPiecesOnly) {
    const json vocab = json::array({json::array({"<unk>", 0.0}), json::array({"a", -1.0}),
                                    json::array({"b", -1.0}), json::array({"c", -1.0}),
                                    json::array({"cab", -2.0})});
    const auto ids = [&](const json& added, const json& normalizer, const char* text) {
        const json file = {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}},
                           {"normalizer", normalizer},
                           {"added_tokens", json::array({added})}};
        const auto made = ReadTokenizerJson(file.dump(), {});
        EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
        return made.ok() ? (*made)->Encode(text) : std::vector<int32_t>();
    };
    using Ids = std::vector<int32_t>;
    const json word = {{"id", 5}, {"content", "abab"}, {"single_word", true}, {"special", false}};
    EXPECT_EQ(ids(word, nullptr, "cabab"), (Ids{4, 1, 2}));
    EXPECT_EQ(ids(word, nullptr, "abab"), (Ids{5}));
    const json exact = {{"id", 5}, {"content", "abab"}, {"normalized", false}, {"special", false}};
    EXPECT_EQ(ids(exact, {{"type", "Lowercase"}}, "ABAB"), (Ids{1, 2, 1, 2}));
    const json own = {{"id", 4}, {"content", "cab"}, {"single_word", true}, {"special", false}};
    EXPECT_EQ(ids(own, nullptr, "cabb"), (Ids{4, 2}));  // a piece of the model, too
}

TEST(TokenizerJson, Frame) {
    json file = SmallJson();
    file["post_processor"] = {
        {"type", "Sequence"},
        {"processors",
         json::array({{{"type", "ByteLevel"}},
                      {{"type", "TemplateProcessing"},
                       {"single", json::array({{{"SpecialToken", {{"id", "<s>"}}}},
                                               {{"Sequence", {{"id", "A"}}}}})},
                       {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {3}}}}}}}})}};
    TokenizerHints hints;
    hints.eos = "<t>";
    hints.ends = {33};
    auto made = ReadTokenizerJson(file.dump(), hints);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ((*made)->Encode("ab"), (std::vector<int32_t>{3, 1}));
    EXPECT_EQ((*made)->data().bos, 3);
    EXPECT_TRUE((*made)->data().add_bos);
    EXPECT_EQ((*made)->data().eos, 4);
    EXPECT_TRUE((*made)->IsEog(4));
    EXPECT_TRUE((*made)->IsEog(33));
    hints.tokenizer_class = "LlamaTokenizer";
    hints.bos = "<s>";
    hints.add_bos = false;
    hints.add_eos = true;
    made = ReadTokenizerJson(file.dump(), hints);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ((*made)->Encode("ab"), (std::vector<int32_t>{1, 4}));
}

TEST(TokenizerJson, RejectsByName) {
    const std::vector<std::tuple<json::json_pointer, json, std::string>> cases = {
        {"/model/type"_json_pointer, "WordLevel", "model 'WordLevel' is not supported"},
        {"/model/dropout"_json_pointer, 0.1, "dropout"},
        {"/model/continuing_subword_prefix"_json_pointer, "##", "continuing_subword_prefix"},
        {"/model/merges"_json_pointer, json::array({"a"}), "merges[0]"},
        {"/model/merges"_json_pointer, json::array({"a b", "a zz"}), "merges[1]"},
        {"/model/merges"_json_pointer, 7, "'merges' is not an array"},
        {"/model/vocab"_json_pointer, json::array(), "'vocab' is not an object"},
        {"/model/vocab/ab"_json_pointer, -1, "'ab' has no id"},
        {"/model/vocab/ab"_json_pointer, 33, "both have the id 33"},
        {"/model/vocab/ab"_json_pointer, 16'000'000, "has the id 16000000"},
        {"/added_tokens/0/id"_json_pointer, 2, "both have the id 2"},
        {"/added_tokens/0/content"_json_pointer, 2, "'content' is of type number"},
        {"/normalizer"_json_pointer, {{"type", "ByteLevel"}}, "normalizer 'ByteLevel' is not"},
        {"/normalizer"_json_pointer,
         {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}},
         "precompiled_charsmap has 3 bytes"},
        {"/pre_tokenizer"_json_pointer, {{"type", "UnicodeScripts"}}, "'UnicodeScripts' is not"},
        {"/pre_tokenizer"_json_pointer,
         {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
         "regular expression '(a'"},
        {"/pre_tokenizer"_json_pointer,
         {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Odd"}},
         "'Odd'"},
        {"/decoder"_json_pointer, {{"type", "CTC"}}, "decoder 'CTC' is not supported"},
        {"/post_processor"_json_pointer, {{"type", "Odd"}}, "post-processor 'Odd' is not"},
    };
    for (const auto& [place, value, words] : cases) {
        json file = SmallJson();
        file[place] = value;
        const auto made = ReadTokenizerJson(file.dump(), {});
        ASSERT_FALSE(made.ok()) << words;
        EXPECT_NE(made.error().message.find(words), std::string::npos) << made.error().message;
    }
    EXPECT_FALSE(ReadTokenizerJson("{", {}).ok());
    EXPECT_FALSE(ReadTokenizerJson("[]", {}).ok());
    EXPECT_FALSE(ReadTokenizerJson("{}", {}).ok());
}

json SplitBy(const std::string& pattern) {
    json file = SmallJson();
    const json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array({split, bytes})}};
    return file;
}

// Expressions that would not finish are rejected before use. Quadratic ones finish within their
// budget; a match after a long search is found.
TEST(TokenizerJson, ExpressionsAreBounded) {
    for (const char* pattern : {R"((a+)+b)", R"((a|aa)+$)", R"((\w+\s?)+:)", R"((x+x+)+y)",
                                R"((\p{L}*)*\p{N})", R"((#*)*@)", "a*a*b"}) {
        const auto made = ReadTokenizerJson(SplitBy(pattern).dump(), {});
        ASSERT_FALSE(made.ok()) << pattern;
        EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
        EXPECT_NE(made.error().message.find("would practically not finish"), std::string::npos)
            << made.error().message;
        json normalized = SmallJson();
        normalized["normalizer"] = {
            {"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", ""}};
        EXPECT_FALSE(ReadTokenizerJson(normalized.dump(), {}).ok()) << pattern;
    }
    const auto square = ReadTokenizerJson(SplitBy("a*b").dump(), {});
    ASSERT_TRUE(square.ok()) << square.error().message;
    const std::clock_t begin = std::clock();
    EXPECT_GT((*square)->Encode(std::string(1 << 20, 'a')).size(), 0u);
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 60);
    // The limit is a count, not a time: the same result twice, also on a busy machine.
    const std::string long_run = std::string(1 << 18, 'a') + "!";
    const auto first = (*square)->Encode(long_run);
    std::vector<int32_t> beside;
    std::thread other([&] { beside = (*square)->Encode(long_run); });
    EXPECT_EQ((*square)->Encode(long_run), first);
    other.join();
    EXPECT_EQ(beside, first);
    const auto rare = ReadTokenizerJson(SplitBy("bc|\xE2\x82\xAC").dump(), {});
    ASSERT_TRUE(rare.ok()) << rare.error().message;
    for (const size_t before : {0, 63, 64, 65, 4094, 4095, 4096, 4097, 8191, 8192, 8193, 99'999}) {
        // "abc" is a token, but not if it is split.
        const std::string head(before, '!');
        auto expected = std::vector<int32_t>(before, '!');
        expected.insert(expected.end(), {'a', 'b', 'c', '!'});
        EXPECT_EQ((*rare)->Encode(head + "abc!"), expected) << before;
    }
}

// Each test of one character takes a second here; all of them share one limit.
TEST(TokenizerJson, AllProbesShareOneBudget) {
    std::string pattern = "!";
    for (char c = 'a'; c <= 'z'; ++c) {
        for (int i = 0; i < 60; ++i)
            pattern += std::string("|") + c + (i % 2 == 0 ? R"(*\()" : R"(*\[)");
    }
    const std::clock_t begin = std::clock();
    const auto made = ReadTokenizerJson(SplitBy(pattern).dump(), {});
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find("practically not finish"), std::string::npos);
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
}

// A chain of steps that double a text: the output is bounded.
TEST(TokenizerJson, GrowthIsBounded) {
    json grown = SmallJson(), spelt = SmallJson();
    json normalizers = json::array(), decoders = json::array();
    for (int i = 0; i < 40; ++i) {
        const char *from = i % 2 == 0 ? "a" : "b", *to = i % 2 == 0 ? "bb" : "aa";
        normalizers.push_back(
            {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}});
        decoders.push_back(normalizers.back());
    }
    grown["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    const auto normalized = ReadTokenizerJson(grown.dump(), {});
    ASSERT_TRUE(normalized.ok()) << normalized.error().message;
    EXPECT_LT((*normalized)->Encode("ab!").size(), 200'000u);
    EXPECT_GT((*normalized)->Encode("ab!").size(), 1000u);
    decoders.push_back({{"type", "Fuse"}});
    spelt["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    spelt["pre_tokenizer"] = nullptr;
    const auto decoded = ReadTokenizerJson(spelt.dump(), {});
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    EXPECT_LT((*decoded)->Decode(std::vector<int32_t>{1, '!'}).size(), 10'000u);
}

// An empty pattern would match everywhere and be replaced forever.
TEST(TokenizerJson, EmptyPatternsAreRefused) {
    for (const json& pattern : {json(""), json{{"String", ""}}, json{{"Regex", ""}}}) {
        const json replace = {{"type", "Replace"}, {"pattern", pattern}, {"content", "a"}};
        json normalized = SmallJson(), decoded = SmallJson();
        normalized["normalizer"] = replace;
        decoded["decoder"] = {{"type", "Sequence"}, {"decoders", json::array({replace})}};
        for (const json& file : {normalized, decoded}) {
            const auto made = ReadTokenizerJson(file.dump(), {});
            ASSERT_FALSE(made.ok()) << file.dump();
        }
    }
}

// Matches longer than PCRE2's initial limits are found completely and from their start.
TEST(TokenizerJson, LongMatchesAreWhole) {
    const auto made = Regex::MakeForeign(R"(\p{L}+| +(?!\S)| +|\d+$)");
    ASSERT_TRUE(made.ok()) << made.error().message;
    for (const size_t length : {1, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 20'000, 300'000}) {
        for (const size_t before : {0, 1, 2047, 4096, 9000}) {
            for (const char* unit : {"a", "\xC3\xA9", " ", "7"}) {
                std::string text(before, '!');
                for (size_t i = 0; i < length; ++i) text += unit;
                RegexRun run(text.size());
                RegexRun::Range found{};
                ASSERT_TRUE(run.Next(*made, text, 0, found)) << unit << length;
                EXPECT_EQ(found.begin, before) << unit << length;
                EXPECT_EQ(found.end, text.size()) << unit << length;
            }
        }
    }
}

TEST(TokenizerJson, OnigurumaExpressions) {
    EXPECT_EQ(TranslateRegex(R"(\p{N}{1,3}+a++)").value(), R"((?:\p{N}{1,3})+a++)");
    EXPECT_EQ(TranslateRegex(R"([a&&[^b]]+)").value(), R"((?:(?![b])[a])+)");
    EXPECT_EQ(TranslateRegex(R"([^(x|[.,])])").value(), R"([^(x|.,)])");
    EXPECT_EQ(TranslateRegex(R"(\p{Han}\p{Lu}\p{^Latin})").value(),
              R"(\p{sc:Han}\p{Lu}\p{^sc:Latin})");
    for (const char* odd : {R"([a&&b])", R"([^[^a]])", R"(\K)", R"((?~a))", R"(\)", R"([a)"}) {
        EXPECT_FALSE(TranslateRegex(odd).ok()) << odd;
    }
}

// As transformers: chat_template.jinja and the folder's other templates come before those of
// tokenizer_config.json.
TEST(TokenizerFolder, ChatTemplates) {
    const test::TempDir temporary;
    const fs::path folder = temporary.path();
    const auto put = [&](const char* name, const std::string& text) {
        std::ofstream(folder / name) << text;
    };
    const auto read = [&] {
        const auto templates = ReadChatTemplates(folder.string());
        return templates.ok() ? *templates : ChatTemplates{{"error", templates.error().message}};
    };
    EXPECT_EQ(ReadChatTemplates(folder.string()).error().code, ErrorCode::kNotFound);
    put("chat_template.json", R"({"chat_template": "processor"})");
    EXPECT_EQ(read(), (ChatTemplates{{"default", "processor"}}));
    const ChatTemplates both = {{"default", "D"}, {"tool_use", "T"}};
    put("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "T"},
                              {"name": "default", "template": "D"}, {"name": 1}, "x"]})");
    EXPECT_EQ(read(), both);
    put("tokenizer_config.json", R"({"chat_template": {"default": "D", "tool_use": "T"}})");
    EXPECT_EQ(read(), both);
    put("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "R"}, {"name": "a", "template": "A"}]})");
    EXPECT_EQ(read(), (ChatTemplates{{"a", "A"}, {"default", "R"}, {"rag", "R"}}));
    put("tokenizer_config.json", R"({"chat_template": "one"})");
    EXPECT_EQ(read(), (ChatTemplates{{"default", "one"}}));
    fs::create_directory(folder / "additional_chat_templates");
    put("additional_chat_templates/tool_use.jinja", "own tools");
    put("additional_chat_templates/notes.txt", "none");
    EXPECT_EQ(read(), (ChatTemplates{{"default", "one"}, {"tool_use", "own tools"}}));
    put("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "D"},
                              {"name": "rag", "template": "R"}]})");
    put("chat_template.jinja", "own file");
    EXPECT_EQ(read(), (ChatTemplates{{"default", "own file"}, {"tool_use", "own tools"}}));
}

// A file with the 256 bytes and `tokens`, in base64.
json TekkenJson(int64_t specials, const std::vector<std::string>& tokens) {
    json vocabulary = json::array();
    const auto add = [&](const std::string& base64) {
        vocabulary.push_back({{"rank", vocabulary.size()}, {"token_bytes", base64}});
    };
    for (int byte = 0; byte < 256; ++byte) {
        constexpr std::string_view kDigits =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const auto at = static_cast<size_t>(byte);
        add({kDigits[at >> 2], kDigits[(at & 3) << 4], '=', '='});
    }
    for (const std::string& token : tokens) add(token);
    return json{
        {"config",
         {{"pattern",
           R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
           R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
           R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
          {"default_num_special_tokens", specials},
          {"default_vocab_size", 256 + std::ssize(tokens) + specials}}},
        {"vocab", vocabulary}};
}

// Ids by mistral_common 1.13.1.
TEST(TekkenFiles, GiveTheIdsOfMistralCommon) {
    const test::TempDir folder;
    const auto open = [&](const json& contents) {
        std::ofstream(folder / "tekken.json") << contents.dump();
        return OpenTokenizerFolder(folder.path());
    };
    // " t", "he", " the", "ing", "in", "ll", "hell", "o w", U+597D, U+00E9
    const std::vector<std::string> tokens = {
        "IHQ=", "aGU=", "IHRoZQ==", "aW5n", "aW4=", "bGw=", "aGVsbA==", "byB3", "5aW9", "w6k="};
    const auto made = open(TekkenJson(24, tokens));
    ASSERT_TRUE(made.ok()) << made.error().message;
    const std::pair<const char*, std::vector<int32_t>> cases[] = {
        {"hello world the thing", {1, 286, 135, 56, 143, 135, 138, 132, 124, 282, 280, 128, 283}},
        {"The caf\xC3\xA9 \xE5\xA5\xBD\xE7\x9A\x84 12",
         {1, 108, 281, 56, 123, 121, 126, 289, 56, 253, 189, 213, 255, 178, 156, 56, 73, 74}},
        {"  x\n\n[INST]", {1, 56, 56, 144, 34, 34, 115, 97, 102, 107, 108, 117}},
        {"e\xCC\x81t \t", {1, 125, 228, 153, 140, 56, 33}}};
    for (const auto& [text, ids] : cases) EXPECT_EQ((*made)->Encode(text), ids) << text;
    EXPECT_EQ((*made)->Encode("[INST]x", {.parse_special = true}),
              (std::vector<int32_t>{1, 3, 144}));
    EXPECT_EQ((*made)->Find("[TOOL_CONTENT]"), 19);
    EXPECT_EQ((*made)->Find("<SPECIAL_23>"), 23);
    EXPECT_TRUE((*made)->IsEog(2));
    // Models of version 3 have no system prompts.
    json old = TekkenJson(24, tokens);
    old["config"]["version"] = "v3";
    EXPECT_EQ(open(old).value()->Find("[SYSTEM_PROMPT]"), -1);
    // A list of special tokens, and a model with fewer tokens than the file has.
    json other = TekkenJson(8, tokens);
    other["config"]["default_vocab_size"] = 269;
    for (const char* name : {"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[THINK]"}) {
        json& list = other["special_tokens"];
        const size_t rank = list.size();
        list.push_back({{"rank", rank}, {"token_str", name}, {"is_control", true}});
    }
    const auto small = open(other);
    ASSERT_TRUE(small.ok()) << small.error().message;
    EXPECT_EQ((*small)->Encode("hello world the thing"),
              (std::vector<int32_t>{1, 265, 116, 116, 119, 40, 127, 119, 122, 116, 108, 266, 264,
                                    112, 267}));
    EXPECT_EQ((*small)->vocab_size(), 269);
    const std::pair<const char*, const char*> faults[] = {
        {"/config/pattern", "pattern"},
        {"/config/default_num_special_tokens", "default_num_special_tokens"},
        {"/config/default_vocab_size", "default_vocab_size"},
        {"/vocab/7/token_bytes", "vocab[7]"},
        {"/vocab/7/rank", "vocab[7]"},
        {"/special_tokens/2/rank", "special_tokens[2]"}};
    for (const auto& [where, part] : faults) {
        json wrong = other;
        wrong[json::json_pointer(where)] = -1;
        const auto refused = open(wrong);
        ASSERT_FALSE(refused.ok()) << where;
        EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
    }
}

TEST(TokenizerFolder, MissingFiles) {
    const test::TempDir temporary;
    const fs::path folder = temporary.path();
    const auto put = [&](const char* name, const std::string& text) {
        std::ofstream(folder / name) << text;
    };
    EXPECT_EQ(OpenTokenizerFolder(folder.string()).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(OpenTokenizerFolder((folder / "none").string()).error().code, ErrorCode::kNotFound);
    put("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}})");
    put("tokenizer.json", SmallJson().dump());
    put("generation_config.json", R"({"eos_token_id": [4, 33]})");
    const auto made = OpenTokenizerFolder(folder.string());
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ((*made)->data().bos, 3);
    EXPECT_EQ((*made)->data().eos, 4);
    EXPECT_TRUE((*made)->IsEog(33));
    put("tokenizer.json", "{");
    const auto broken = OpenTokenizer((folder / "tokenizer.json").string());
    ASSERT_FALSE(broken.ok());
    EXPECT_NE(broken.error().message.find("tokenizer.json: not JSON"), std::string::npos);
}

}  // namespace
}  // namespace weft::tokenizer

// Parts that need no server: names, listings, choices, ranges, notes, the user's settings.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "base/file.h"
#include "hub/cache.h"
#include "hub/choose.h"
#include "hub/digest.h"
#include "hub/http.h"
#include "hub/listing.h"
#include "hub/part.h"
#include "hub/spec.h"
#include "support/temp_dir.h"

namespace weft::hub {
namespace {

TEST(HubNames, Arguments) {
    const auto spec = ParseSpec("hf:unsloth/Qwen3-8B-GGUF@refs/pr/3:UD/x-Q4_K_M.gguf");
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(spec->owner, "unsloth");
    EXPECT_EQ(spec->name, "Qwen3-8B-GGUF");
    EXPECT_EQ(spec->revision, "refs/pr/3");
    EXPECT_EQ(spec->what, "UD/x-Q4_K_M.gguf");
    EXPECT_EQ(spec->Text(), "hf:unsloth/Qwen3-8B-GGUF@refs/pr/3:UD/x-Q4_K_M.gguf");
    EXPECT_EQ(ParseSpec("o/n")->Text(), "hf:o/n");
    for (const char* word :
         {"",        "hf:",   "o",       "o/",       "/n",       "o/n/x",    "../n",
          "o/..",    "o/n@",  "o/n:",    "o/n@../x", "o/n@a//b", "o/n:../x", "o/n:/x",
          "o/n: \n", "o o/n", "o/n@-?x", "a--b/c",   ".o/n",     "o/n@a b",  "o\\x/n"}) {
        const auto bad = ParseSpec(word);
        ASSERT_FALSE(bad.ok()) << word;
        EXPECT_EQ(ExitStatus(bad.error().code), 2);
    }
    EXPECT_FALSE(ParseSpec(std::string(97, 'o') + "/n").ok());
}

TEST(HubNames, SafePaths) {
    for (const char* path : {"a", "a/b.c", "a..b", "...", "a b/c"})
        EXPECT_TRUE(IsSafePath(path)) << path;
    for (const char* path :
         {"", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\\b", "a\tb", "\x7f"}) {
        EXPECT_FALSE(IsSafePath(path)) << path;
    }
    EXPECT_FALSE(IsSafePath(std::string("a\0b", 3)));
    EXPECT_FALSE(IsSafePath(std::string(241, 'a')));
    std::string deep = "a";
    while (deep.size() < 1024) deep += "/a";
    EXPECT_FALSE(IsSafePath(deep));
}

RepoFile MakeFile(const std::string& path, uint64_t bytes = 10) {
    RepoFile file;
    file.path = path;
    file.bytes = bytes;
    return file;
}

std::string Chosen(const std::vector<std::string>& paths, const std::string& word) {
    std::vector<RepoFile> files;
    for (const std::string& path : paths) files.push_back(MakeFile(path, 2'000'000'000));
    const auto choice = Choose(files, *ParseSpec(word));
    if (!choice.ok()) return "error: " + choice.error().message;
    std::string text;
    for (const RepoFile& file : choice->files) text += file.path + " ";
    return text + "-> " + choice->model + choice->index;
}

TEST(HubNames, ChoiceOfGguf) {
    const std::vector<std::string> shelf = {
        "README.md",
        "x-Q4_K_S.gguf",
        "x-Q4_K_M.gguf",
        "x-Q4_0.gguf",
        "x-Q4_0_4_4.gguf",
        "mmproj-Q8_0.gguf",
        "BF16/x-BF16-00001-of-00002.gguf",
        "BF16/x-BF16-00002-of-00002.gguf",
    };
    EXPECT_EQ(Chosen(shelf, "o/n:q4_k_m"), "x-Q4_K_M.gguf -> x-Q4_K_M.gguf");
    EXPECT_EQ(Chosen(shelf, "o/n:Q4_0"), "x-Q4_0.gguf -> x-Q4_0.gguf");
    const std::string both =
        "BF16/x-BF16-00001-of-00002.gguf BF16/x-BF16-00002-of-00002.gguf -> "
        "BF16/x-BF16-00001-of-00002.gguf";
    EXPECT_EQ(Chosen(shelf, "o/n:BF16"), both);
    EXPECT_EQ(Chosen(shelf, "o/n:BF16/x-BF16-00002-of-00002.gguf"), both);
    EXPECT_EQ(Chosen(shelf, "o/n:README.md"), "README.md -> README.md");
    const std::string several = Chosen(shelf, "o/n");
    EXPECT_NE(several.find("5 models"), std::string::npos) << several;
    EXPECT_NE(several.find("3.73 GiB  BF16/x-BF16-00001-of-00002.gguf (2 parts)"),
              std::string::npos)
        << several;
    EXPECT_EQ(several.find("mmproj"), std::string::npos) << several;
    EXPECT_NE(Chosen(shelf, "o/n:Q6_K").find("no GGUF file of that type"), std::string::npos);
    EXPECT_NE(Chosen({"a-Q4_0.gguf", "b-Q4_0.gguf"}, "o/n:Q4_0").find("several"),
              std::string::npos);
    EXPECT_NE(Chosen({"x-00002-of-00002.gguf"}, "o/n").find("1 of its 2 parts"), std::string::npos);
    EXPECT_NE(Chosen({"x.bin"}, "o/n").find("no GGUF file"), std::string::npos);
}

TEST(HubNames, ChoiceOfFolder) {
    EXPECT_EQ(Chosen({"config.json", "model.safetensors", "consolidated.safetensors", "x.gguf",
                      "pytorch_model.bin", "tokenizer.model", "x/config.json"},
                     "o/n"),
              "config.json tokenizer.model model.safetensors -> ");
    EXPECT_EQ(Chosen({"config.json", "model.safetensors", "modules.json", "1_Pooling/config.json",
                      "2_Dense/config.json", "2_Dense/model.safetensors",
                      "2_Dense/pytorch_model.bin", "onnx/config.json", "1_Pooling/x/config.json"},
                     "o/n"),
              "config.json modules.json 1_Pooling/config.json 2_Dense/config.json "
              "2_Dense/model.safetensors model.safetensors -> ");
    EXPECT_EQ(
        Chosen({"config.json", "model.safetensors", "chat_template.jinja",
                "additional_chat_templates/tool_use.jinja", "additional_chat_templates/x/y.jinja",
                "additional_chat_templates/z.txt", "other/tool_use.jinja"},
               "o/n"),
        "config.json chat_template.jinja additional_chat_templates/tool_use.jinja "
        "model.safetensors -> ");
    EXPECT_EQ(Chosen({"config.json", "model.safetensors.index.json", "pytorch_model.bin.index.json",
                      "a.safetensors"},
                     "o/n"),
              "config.json model.safetensors.index.json -> model.safetensors.index.json");
    // PyTorch's files are chosen only if there are no safetensors and no GGUF files.
    EXPECT_EQ(Chosen({"config.json", "pytorch_model.bin", "tf_model.h5", "flax_model.msgpack",
                      "merges.txt", "training_args.bin"},
                     "o/n"),
              "config.json merges.txt pytorch_model.bin -> ");
    EXPECT_EQ(Chosen({"config.json", "pytorch_model.bin.index.json",
                      "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"},
                     "o/n"),
              "config.json pytorch_model.bin.index.json -> pytorch_model.bin.index.json");
    EXPECT_EQ(Chosen({"config.json", "pytorch_model.bin", "x-Q4_0.gguf"}, "o/n"),
              "x-Q4_0.gguf -> x-Q4_0.gguf");
    // A whole file comes before an index, as in transformers.
    EXPECT_EQ(Chosen({"config.json", "model.safetensors.index.json", "a.safetensors",
                      "model.safetensors"},
                     "o/n"),
              "config.json model.safetensors -> ");
}

TEST(HubNames, NextPage) {
    EXPECT_EQ(NextPage("<https://h/x?a=1>; rel=\"next\""), "https://h/x?a=1");
    EXPECT_EQ(NextPage("<https://h/p>; rel=\"prev\", <https://h/n>; rel=\"next\""), "https://h/n");
    for (const char* none : {"", "<", "<>", "<x>; rel=\"prev\"", "x; rel=\"next\"", "<x"}) {
        EXPECT_EQ(NextPage(none), "") << none;
    }
}

TEST(HubNames, ListingsOfOtherTypes) {
    const std::string good =
        R"({"type":"file","path":"a","size":1,"oid":")" + std::string(40, 'a') + "\"}";
    std::vector<RepoFile> files;
    ASSERT_TRUE(ParseTreePage("[" + good + "]", "test", files).ok());
    ASSERT_EQ(files.size(), 1u);
    EXPECT_FALSE(ParseTreePage("[" + good + "]", "test", files).ok()) << "twice";
    EXPECT_EQ(files.size(), 1u);
    files.clear();
    for (const char* bad :
         {"", "{}", "[1]", "[{}]", "[{\"type\":1}]", R"([{"type":"file"}])",
          R"([{"type":"file","path":"a","size":-1,"oid":"x"}])",
          R"([{"type":"file","path":"a","size":1e300,"oid":"x"}])",
          R"([{"type":"file","path":"a","size":1,"oid":"../x"}])",
          R"([{"type":"file","path":"a","size":1,"oid":"x","lfs":{}}])", "\xff\xfe"}) {
        EXPECT_FALSE(ParseTreePage(bad, "test", files).ok()) << bad;
    }
    EXPECT_TRUE(files.empty());
    EXPECT_FALSE(ParseCommit(R"({"sha":"../../x"})", "test").ok());
    const auto nested = [](size_t depth) {
        return R"({"sha":")" + std::string(40, 'a') + R"(","[[[":")" + std::string(99, '[') +
               R"(\"[","x":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
    };
    EXPECT_TRUE(ParseCommit(nested(20), "test").ok());
    EXPECT_FALSE(ParseCommit(nested(40), "test").ok());
    EXPECT_FALSE(ParseShardIndex(R"({"weight_map":{"a":"../x"}})", "test").ok());
    EXPECT_FALSE(ParseShardIndex(R"({"weight_map":{"a":"x/y"}})", "test").ok());
}

// DeepSeek-V3 has 91,991 tensors in 163 files.
TEST(HubListing, AnIndexHasManyTensors) {
    std::string text = R"({"metadata": {"total_size": 1}, "weight_map": {)";
    for (int i = 0; i < 100'000; ++i) {
        text += fmt::format("{}\"model.layers.{}.mlp.experts.{}.w\": \"model-{:05}.safetensors\"",
                            i == 0 ? "" : ", ", i / 1000, i % 1000, i % 163);
    }
    const auto names = ParseShardIndex(text + "}}", "test");
    ASSERT_TRUE(names.ok()) << names.error().message;
    EXPECT_EQ(names->size(), 163u);
}

// Compares with a plain bitmap.
TEST(HubParts, RangesAgainstABitmap) {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        const uint64_t size = 1 + random() % 60;
        std::vector<bool> map(size);
        RangeSet set;
        for (int i = 0; i < 12; ++i) {
            const uint64_t begin = random() % size, end = begin + random() % (size - begin + 1);
            set.Add({begin, end});
            for (uint64_t at = begin; at < end; ++at) map[at] = true;
            uint64_t count = 0, prefix = 0;
            for (const bool bit : map) count += bit;
            while (prefix < size && map[prefix]) ++prefix;
            ASSERT_EQ(set.bytes(), count);
            ASSERT_EQ(set.Prefix(), prefix);
            std::vector<bool> missing(size);
            for (const ByteRange& gap : set.Missing(size)) {
                for (uint64_t at = gap.begin; at < gap.end; ++at) missing[at] = true;
            }
            for (uint64_t at = 0; at < size; ++at) ASSERT_NE(map[at], missing[at]);
            for (size_t j = 1; j < set.ranges().size(); ++j) {
                ASSERT_LT(set.ranges()[j - 1].end, set.ranges()[j].begin);
            }
        }
    }
}

// A set with a gap has the ranges of the plain set, and the bytes between ranges that are that
// close.
TEST(HubParts, RangesWithAGap) {
    std::mt19937 random(5);
    for (int round = 0; round < 200; ++round) {
        const uint64_t size = 1 + random() % 300, gap = random() % 20;
        RangeSet plain, wide(gap);
        for (int i = 0; i < 15; ++i) {
            const uint64_t begin = random() % size;
            const ByteRange range{begin, std::min(size, begin + random() % 10)};
            plain.Add(range);
            wide.Add(range);
        }
        std::vector<ByteRange> expected;
        for (const ByteRange& range : plain.ranges()) {
            if (!expected.empty() && range.begin - expected.back().end <= gap) {
                expected.back().end = range.end;
            } else {
                expected.push_back(range);
            }
        }
        ASSERT_EQ(wide.ranges().size(), expected.size());
        uint64_t bytes = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(wide.ranges()[i].begin, expected[i].begin);
            ASSERT_EQ(wide.ranges()[i].end, expected[i].end);
            bytes += expected[i].end - expected[i].begin;
        }
        ASSERT_EQ(wide.bytes(), bytes);
        for (int i = 0; i < 20; ++i) {
            const uint64_t begin = random() % size, end = begin + random() % (size - begin + 1);
            uint64_t missing = end - begin;
            for (const ByteRange& range : plain.ranges()) {
                const uint64_t from = std::max(begin, range.begin), to = std::min(end, range.end);
                missing -= to > from ? to - from : 0;
            }
            uint64_t said = 0;
            for (const ByteRange& hole : plain.MissingOf({begin, end})) {
                ASSERT_TRUE(hole.begin >= begin && hole.end <= end && hole.begin < hole.end);
                said += hole.end - hole.begin;
            }
            ASSERT_EQ(said, missing);
            ASSERT_EQ(plain.Contains({begin, end}), missing == 0);
        }
    }
}

TEST(HubParts, NotesRoundTrip) {
    PartNote note;
    note.hash = std::string(64, 'a');
    note.size = 1000;
    note.etag = "W/\"x\\y\"";
    note.done.Add({0, 10});
    note.done.Add({20, 1000});
    const auto back = ParseNote(PrintNote(note));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(PrintNote(*back), PrintNote(note));
    EXPECT_EQ(back->done.bytes(), 990u);
    const std::string text = PrintNote(note);
    for (size_t cut = 0; cut + 1 < text.size(); ++cut) {
        EXPECT_FALSE(ParseNote(std::string_view(text).substr(0, cut)).ok()) << cut;
    }
    for (const char* range : {"[10,10]", "[5,2]", "[0,1001]", "[-1,5]", "[0]", "[0.5,1]", "7"}) {
        const std::string bad = R"({"weft_part":1,"hash":"a","size":1000,"etag":"","done":[)" +
                                std::string(range) + "]}";
        EXPECT_FALSE(ParseNote(bad).ok()) << range;
    }
}

TEST(HubParts, HashesOfOtherPrograms) {
    Digest git(false, 6);  // printf 'hello\n' | git hash-object --stdin
    git.Add(std::as_bytes(std::span("hello\n", 6)));
    EXPECT_EQ(git.Finish(), "ce013625030ba8dba906f756967f9e9ca394464a");
    Digest sha(true, 6);  // printf 'hello\n' | sha256sum
    sha.Add(std::as_bytes(std::span("hel", 3)));
    sha.Add(std::as_bytes(std::span("lo\n", 3)));
    EXPECT_EQ(sha.Finish(), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
}

TEST(HubNames, Origins) {
    EXPECT_TRUE(SameOrigin("https://h/x", "https://H:443/y"));
    EXPECT_FALSE(SameOrigin("https://h/x", "http://h/x"));
    EXPECT_FALSE(SameOrigin("https://h/x", "https://h:444/x"));
    EXPECT_FALSE(SameOrigin("https://h/x", "https://h.evil/x"));
    EXPECT_FALSE(SameOrigin("https://h@evil/x", "https://h/x"));
    EXPECT_FALSE(SameOrigin("x", "x"));
    EXPECT_EQ(UrlText("a b/c?%#", true), "a%20b/c%3F%25%23");
    EXPECT_EQ(UrlText("refs/pr/1", false), "refs%2Fpr%2F1");
}

using Entries = std::map<std::string, std::string>;

class Environment {
  public:
    explicit Environment(const Entries& entries) {
        for (const char* name : {"HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME",
                                 "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HOME",
                                 "SSL_CERT_FILE", "HUGGING_FACE_HUB_TOKEN"}) {
            const char* old = std::getenv(name);
            saved_.emplace_back(name, old == nullptr ? "" : old);
            ::unsetenv(name);
        }
        for (const auto& [name, value] : entries) ::setenv(name.c_str(), value.c_str(), 1);
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;
    ~Environment() {
        for (const auto& [name, value] : saved_) {
            ::unsetenv(name);
            if (!value.empty()) ::setenv(name, value.c_str(), 1);
        }
    }

  private:
    std::vector<std::pair<const char*, std::string>> saved_;
};

TEST(HubNames, Settings) {
    const test::TempDir folder;
    std::ofstream(folder / "token") << "hf_file\n";
    {
        const Environment environment(Entries{{"HOME", "/h"}});
        const auto config = ConfigFromEnvironment();
        EXPECT_EQ(config->cache, "/h/.cache/huggingface/hub");
        EXPECT_EQ(config->endpoint, "https://huggingface.co");
        EXPECT_EQ(config->token, "");
    }
    {
        const Environment environment(Entries{
            {"HOME", "/h"}, {"HF_HOME", folder.path()}, {"HF_ENDPOINT", "https://mirror/"}});
        const auto config = ConfigFromEnvironment();
        EXPECT_EQ(config->cache, folder.path() + "/hub");
        EXPECT_EQ(config->endpoint, "https://mirror");
        EXPECT_EQ(config->token, "hf_file");
    }
    {
        const Environment environment(Entries{{"HF_TOKEN_PATH", folder / "token"},
                                              {"HF_HUB_CACHE", "~/c"},
                                              {"HOME", "/h"},
                                              {"HF_TOKEN", " hf_own "}});
        const auto config = ConfigFromEnvironment();
        EXPECT_EQ(config->cache, "/h/c");
        EXPECT_EQ(config->token, "hf_own");
    }
    {
        // A service has no HOME; it still uses the user's cache, not a folder here.
        const Environment environment(Entries{{"HOME", ""}});
        EXPECT_TRUE(ConfigFromEnvironment()->cache.starts_with('/'));
    }
    const Environment header(Entries{{"HF_TOKEN", "a\r\nHost: x"}});
    EXPECT_FALSE(ConfigFromEnvironment().ok());
    const Environment scheme(Entries{{"HF_ENDPOINT", "file:///etc"}});
    EXPECT_FALSE(ConfigFromEnvironment().ok());
}

// Two processes with the same id on two hosts share a cache folder; two threads simulate them.
TEST(HubNames, WritersOfOneNameDoNotDisturbEachOther) {
    const test::TempDir dir;
    const auto spec = ParseSpec("o/n");
    RepoFile file;
    file.path = "x.gguf";
    const std::string blobs = dir / "blobs/";
    const std::string commits[] = {std::string(40, 'a'), std::string(40, 'b')};
    const auto write = [&](int first) {
        for (int i = first; i < first + 300; ++i) {
            const std::string& commit = commits[i % 2];
            const Status ref = WriteRef(dir.path(), *spec, commit);
            EXPECT_TRUE(ref.ok()) << ref.error().message;
            const Status link = LinkBlob(dir.path(), commits[0], file, blobs + commit, false);
            EXPECT_TRUE(link.ok()) << link.error().message;
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(write, i);
    for (std::thread& thread : threads) thread.join();
    const auto ref = ReadTextFile(dir / "refs/main");
    ASSERT_TRUE(ref.ok()) << ref.error().message;
    EXPECT_TRUE(*ref == commits[0] || *ref == commits[1]) << *ref;
    const std::filesystem::path snapshot = SnapshotPath(dir.path(), commits[0]);
    for (const auto& folder : {std::filesystem::path(dir / "refs"), snapshot}) {
        const auto entries = std::filesystem::directory_iterator(folder);
        EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "a temporary file is left";
    }
}

}  // namespace
}  // namespace weft::hub

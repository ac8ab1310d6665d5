// Data sets of the Hub: the files of a split, and their download into the cache
// (tests/hub/server.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "hub/cache.h"
#include "hub/choose_data.h"
#include "hub/data_format.h"
#include "hub/pull.h"
#include "support/hub_server.h"
#include "support/paths.h"
#include "support/run_weft.h"

namespace weft::test {
namespace {

using support::operator+;
using support::Ran;
using support::RunWeft;
using support::Words;
using Paths = std::vector<std::string>;

Result<std::vector<hub::RepoFile>> Choose(const std::string& word, const Paths& paths,
                                          const json& configs = {}) {
    std::vector<hub::RepoFile> files;
    for (const std::string& path : paths) files.push_back({path, 1, std::string(40, 'a'), false});
    json info = {{"sha", kCommit}};
    if (!configs.is_null()) info["cardData"]["configs"] = configs;
    const auto spec = hub::ParseSpec("hf:datasets/" + word);
    if (!spec.ok()) return spec.error();
    return hub::ChooseData(files, *spec, info.dump());
}

void ExpectChosen(const std::string& word, const Paths& paths, const json& configs,
                  const Paths& expected) {
    const auto chosen = Choose(word, paths, configs);
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    Paths found;
    for (const hub::RepoFile& file : *chosen) found.push_back(file.path);
    EXPECT_EQ(found, expected) << word;
}

void ExpectNone(const std::string& word, const Paths& paths, const json& configs,
                const std::string& message) {
    const auto chosen = Choose(word, paths, configs);
    ASSERT_FALSE(chosen.ok()) << word;
    EXPECT_NE(chosen.error().message.find(message), std::string::npos) << chosen.error().message;
}

TEST(DataChoice, Words) {
    const auto spec = [](const std::string& word) {
        const auto parsed = hub::ParseSpec(word);
        EXPECT_TRUE(parsed.ok()) << word;
        return parsed.ok() ? *parsed : hub::RepoSpec();
    };
    for (const char* word :
         {"hf:datasets/o/n", "hf:datasets/o/n/test", "hf:datasets/o/n:c", "hf:datasets/o/n:c/test",
          "hf:datasets/o/n@v1:c/test", "hf:datasets/o/n@refs/convert/parquet:c",
          "hf:datasets/o/n@refs/convert/parquet/test"}) {
        EXPECT_TRUE(spec(word).is_dataset);
        EXPECT_EQ(spec(word).Text(), word);
    }
    EXPECT_EQ(spec("hf:datasets/o/n@v1:c/test").split, "test");
    EXPECT_EQ(spec("https://huggingface.co/datasets/o/n").Text(), "hf:datasets/o/n");
    for (const char* word : {"hf:datasets/o", "hf:datasets/o/n/a/b", "hf:datasets/o/n:../x",
                             "hf:datasets/o/n/..", "hf:datasets/o/n@", "hf:datasets/o/n:"}) {
        EXPECT_FALSE(hub::ParseSpec(word).ok()) << word;
    }
}

TEST(DataChoice, NamesOfFiles) {
    const Paths shards = {"README.md", "data/test-00000-of-00001.parquet",
                          "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
                          "data/train_sft-00000-of-00001-0a1b.parquet"};
    ExpectChosen("o/n", shards, {}, {shards[2], shards[3]});
    ExpectChosen("o/n/train_sft", shards, {}, {shards[4]});
    ExpectNone("o/n/gen", shards, {}, "no split 'gen'; its splits: test, train, train_sft");
    const Paths words = {"dataset_info.json", "train.jsonl", "dev/a.jsonl",
                         "eval.jsonl.gz",     "train.csv",   "train-2.jsonl"};
    ExpectChosen("o/n", words, {}, {"train-2.jsonl", "train.jsonl"});
    ExpectChosen("o/n/validation", words, {}, {"dev/a.jsonl"});
    ExpectChosen("o/n/test", words, {}, {"eval.jsonl.gz"});
    ExpectChosen("o/n", {"a.json", "b.json", "x.py"}, {}, {"a.json", "b.json"});
    ExpectNone("o/n", {"a.zip"}, {}, "no file of its split 'train' ends in .parquet");
}

TEST(DataChoice, ConfigurationsOfTheReadme) {
    const Paths files = {"n.py", "a/train.jsonl", "b/test.jsonl", "b/train.jsonl", "c/x/1.jsonl"};
    const json configs = json::parse(R"([
        {"config_name": "a", "data_files": "a/*.jsonl"},
        {"config_name": "b", "data_files": [{"split": "train", "path": ["b/train*"]},
                                            {"split": "test", "path": "b/test.jsonl"}]},
        {"config_name": "c", "data_files": [{"split": "train", "path": "**/1.jsonl"}]},
        {"config_name": "d", "data_dir": "b"}])");
    ExpectChosen("o/n:a", files, configs, {"a/train.jsonl"});
    ExpectChosen("o/n:b/test", files, configs, {"b/test.jsonl"});
    ExpectChosen("o/n:c", files, configs, {"c/x/1.jsonl"});
    ExpectChosen("o/n:d", files, configs, {"b/train.jsonl"});
    ExpectNone("o/n", files, configs,
               "its configurations: a, b, c, d. Name one, as "
               "hf:datasets/o/n:a");
    ExpectNone("o/n:b/dev", files, configs, "its splits: test, train. Name one");
    // `**` stands for any number of folders, also more than once; `*` for none.
    const Paths deep = {"a/train/old/x.jsonl", "a/train/x.jsonl", "train/x.jsonl"};
    const auto with = [](const json& paths) {
        return json::array({{{"config_name", "e"}, {"data_files", paths}}});
    };
    ExpectChosen("o/n", deep, with("**/train/**/*.jsonl"), {deep[0], deep[1], deep[2]});
    ExpectChosen("o/n", deep, with("**/train/*.jsonl"), {deep[1], deep[2]});
    // Folders and pattern are untrusted: they are compared in one pass.
    std::string nested;
    for (int i = 0; i < 2000; ++i) nested += "a/";
    ExpectChosen("o/n", {nested + "y.jsonl", "t.jsonl"},
                 with(json::array({"**/a/**/a/**/a/**/a/**/a/**/x.jsonl", "t.jsonl"})),
                 {"t.jsonl"});
    json chosen = configs;
    chosen[1]["default"] = true;
    ExpectChosen("o/n", files, chosen, {"b/train.jsonl"});
}

// Refused before the download: training reads no more.
TEST(DataChoice, TooManyFiles) {
    Paths paths;
    for (size_t i = 0; i < hub::kMostDataFiles; ++i) {
        paths.push_back(fmt::format("en/c4-train.{:05}.json.gz", i));
    }
    EXPECT_TRUE(Choose("o/n:en", paths).ok());
    paths.push_back("en/c4-train.more.json.gz");
    ExpectNone("o/n:en", paths, {}, "the split has 4097 files; 'weft train' reads at most 4096");
}

TEST(DataChoice, ArrowFilesAreLeftOutOrRefused) {
    ExpectNone("o/n", {"train/data-00000-of-00001.arrow", "train/state.json"}, {},
               "o/n: its files are Arrow files, which Weft does not read. The Hub converts most "
               "data sets to Parquet files: use hf:datasets/o/n@refs/convert/parquet");
    ExpectNone("o/n", {"a.arrow", "b.arrow", "notes.txt", "labels.json"}, {}, "are Arrow files");
    ExpectChosen("o/n", {"train/data-00000-of-00001.arrow", "train/0.parquet"}, {},
                 {"train/0.parquet"});
}

TEST(DataChoice, ProgramsAreNotRun) {
    ExpectNone("o/n:c/test", {"n.py", "data.zip"}, {},
               "Weft runs no programs of data sets. The Hub converts most data sets to Parquet "
               "files: use hf:datasets/o/n@refs/convert/parquet:c/test");
    const Paths converted = {"train/test/0000.parquet", "train/train/0000.parquet",
                             "train/train/0001.parquet", "z/train/0000.parquet"};
    ExpectChosen("o/n@refs/convert/parquet:train/test", converted, {}, {converted[0]});
    ExpectChosen("o/n@refs/convert/parquet:train", converted, {}, {converted[1], converted[2]});
    ExpectNone("o/n@refs/convert/parquet", converted, {}, "its configurations: train, z");
}

class HubDataTest : public HubTest {
  protected:
    Words Environment() const {
        return {"HF_ENDPOINT=" + server_->endpoint(),
                "HF_HUB_CACHE=" + config_.cache,
                "SSL_CERT_FILE=" + config_.ca_file,
                "HF_HOME=" + folder_.path(),
                "HF_TOKEN=",
                "HUGGING_FACE_HUB_TOKEN="};
    }
    Ran Inspect(const Words& more, const Words& environment = {}) const {
        const std::string model = support::TestData("/../../models/abacus");
        return RunWeft(Words{"train", "data", "inspect", model, "--json"} + more,
                       Environment() + environment);
    }
};

TEST_F(HubDataTest, TrainingReadsASplit) {
    const std::string record = R"({"question": "1 + 1?", "answer": "2"})";
    server_->Set({{"dataset", true},
                  {"card", {{"license", "mit"}}},
                  {"files",
                   {Small("README.md", "-"), Small("train-00000-of-00002.jsonl", record + "\n"),
                    Small("train-00001-of-00002.jsonl", record + "\n" + record + "\n"),
                    Small("test.jsonl", record + "\n")}}});
    const Words data = {"--data", "hf:datasets/o/n"};
    const Ran without = Inspect(data);
    EXPECT_EQ(without.status, 1);
    EXPECT_NE(without.err.find("weft pull hf:datasets/o/n"), std::string::npos) << without.err;
    const Ran with = Inspect(data + Words{"--pull"});
    ASSERT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(with.Json()["train"]["samples"], 3) << with.out;
    // Without a network; the other split is not in the cache.
    server_->Set({{"files", json::array()}});
    const Ran again = Inspect(data + Words{"--pull"}, {"HF_HUB_OFFLINE=1"});
    EXPECT_EQ(again.status, 0) << again.err;
    const Ran other = Inspect({"--data", "hf:datasets/o/n/test"});
    EXPECT_EQ(other.status, 1);
    EXPECT_NE(other.err.find("weft pull hf:datasets/o/n/test"), std::string::npos) << other.err;
    EXPECT_TRUE(server_->Counted()["requests"].empty());
    // Another split was pulled from a newer commit.
    std::ofstream(config_.cache + "/datasets--o--n/refs/main") << std::string(40, 'b');
    const Ran older = Inspect(data);
    EXPECT_EQ(older.status, 0) << older.err;
    EXPECT_NE(older.err.find(std::string("using commit ") + kCommit), std::string::npos)
        << older.err;
}

TEST_F(HubDataTest, PullsAndRefuses) {
    server_->Set({{"dataset", true}, {"files", {Small("train.parquet", "PAR1"), Small("n", "")}}});
    const Ran pulled = RunWeft({"pull", "hf:datasets/o/n@v1"}, Environment());
    ASSERT_EQ(pulled.status, 0) << pulled.err;
    EXPECT_NE(pulled.out.find("weft train MODEL --data hf:datasets/o/n@v1"), std::string::npos)
        << pulled.out;
    const Ran offline = RunWeft({"pull", "hf:datasets/o/n@v1", "--json"},
                                Environment() + Words{"HF_HUB_OFFLINE=1"});
    ASSERT_EQ(offline.status, 0) << offline.err;
    EXPECT_EQ(offline.Json()["commit"], kCommit);
    const Ran model = RunWeft({"run", "hf:datasets/o/n@v1", "-p", "x"}, Environment());
    EXPECT_NE(model.err.find("a data set; expected a model"), std::string::npos) << model.err;
    server_->Set({{"dataset", true}, {"files", {Small("n.py", "")}}});
    const Ran refused = RunWeft({"pull", "hf:datasets/o/n"}, Environment());
    EXPECT_EQ(refused.status, 1);
    EXPECT_NE(refused.err.find("hf:datasets/o/n@refs/convert/parquet"), std::string::npos)
        << refused.err;
}

}  // namespace
}  // namespace weft::test

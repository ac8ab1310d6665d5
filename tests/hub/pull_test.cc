// Pulls from a misbehaving Hub: tests/hub/server.py.
#include "hub/pull.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/deadline.h"
#include "base/file.h"
#include "hub/cache.h"
#include "hub/part.h"
#include "support/hub_server.h"
#include "support/limits.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

class PullTest : public HubTest {
  protected:
    Result<hub::Pulled> Pull(const std::string& word) {
        auto spec = hub::ParseSpec(word);
        EXPECT_TRUE(spec.ok()) << word;
        const int64_t begin_ns = NowNs();
        auto pulled = hub::Pull(config_, *spec, {});
        seconds_ = static_cast<double>(NowNs() - begin_ns) * 1e-9;
        return pulled;
    }
    // Expects the pull to fail with `code` and a message that contains `text`.
    void ExpectError(const std::string& word, ErrorCode code, const std::string& text) {
        const auto pulled = Pull(word);
        ASSERT_FALSE(pulled.ok());
        EXPECT_EQ(static_cast<int>(pulled.error().code), static_cast<int>(code))
            << pulled.error().message;
        EXPECT_NE(pulled.error().message.find(text), std::string::npos) << pulled.error().message;
        EXPECT_EQ(pulled.error().message.find("sign=secret"), std::string::npos);
    }
    void ExpectWhole(const Result<hub::Pulled>& pulled) {
        ASSERT_TRUE(pulled.ok()) << pulled.error().message;
        for (const hub::PulledFile& file : pulled->files) {
            const std::string path =
                hub::SnapshotPath(Folder(), pulled->commit) + "/" + file.file.path;
            ASSERT_TRUE(fs::is_symlink(path)) << path;
            EXPECT_TRUE(fs::read_symlink(path).is_relative());
            const auto text = ReadTextFile(path);
            ASSERT_TRUE(text.ok()) << text.error().message;
            EXPECT_EQ(text->size(), file.file.bytes);
            if (file.file.large) {
                EXPECT_EQ(Hex(Sha256(std::as_bytes(std::span(*text)))), file.file.hash);
            }
        }
        for (const hub::PulledFile& file : pulled->files) {
            EXPECT_FALSE(fs::exists(hub::PartPath(Folder(), file.file)));
            EXPECT_FALSE(fs::exists(hub::PartPath(Folder(), file.file) + ".json"));
        }
    }
    // Pulls the range `wanted` of each of these files.
    Result<hub::Pulled> PullRanges(const std::vector<std::string>& names, hub::ByteRange wanted) {
        const auto plan = [&](const std::string& model) -> Result<hub::ShardRanges> {
            const std::string folder =
                model.ends_with(".gguf") ? fs::path(model).parent_path() : fs::path(model);
            hub::ShardRanges ranges;
            for (const std::string& name : names) ranges.files[folder + "/" + name].Add(wanted);
            ranges.is_all = true;
            return ranges;
        };
        return hub::PullShard(config_, *hub::ParseSpec("o/n"), plan, {});
    }
    std::string Folder() const { return config_.cache + "/models--o--n"; }
    uint64_t Sent() const { return server_->Counted()["sent"].get<uint64_t>(); }

    double seconds_ = 0;
};

constexpr uint64_t kPullBig = 24 << 20;  // several pieces

TEST_F(PullTest, OneFileOverSeveralConnections) {
    server_->Set(
        {{"files", {Large("x-Q4_0.gguf", kPullBig + 12345), Small("README.md", "hello")}}});
    const auto pulled = Pull("o/n:Q4_0");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
    ASSERT_EQ(pulled->files.size(), 1u);
    EXPECT_EQ(pulled->fetched_bytes, kPullBig + 12345);
    EXPECT_EQ(Sent(), kPullBig + 12345);
    EXPECT_EQ(*ReadTextFile(Folder() + "/refs/main"), kCommit);
    EXPECT_EQ(pulled->path, Folder() + "/snapshots/" + kCommit + "/x-Q4_0.gguf");
    // Once it is complete, none of it is requested again.
    const auto again = Pull("o/n:Q4_0");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(again));
    EXPECT_EQ(again->fetched_bytes, 0u);
    EXPECT_TRUE(again->files[0].cached);
    EXPECT_EQ(Sent(), kPullBig + 12345);
    const auto found = hub::FindCached(config_, *hub::ParseSpec("o/n:x-Q4_0.gguf"));
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, pulled->path);
}

TEST_F(PullTest, FolderWithShardsOverPagesOfTheListing) {
    const json index = {{"weight_map", {{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}}}};
    server_->Set({{"page", 3},
                  {"files",
                   {Small("config.json", "{}"), Small("empty.json", ""),
                    Small("tokenizer.json", "{\"t\":1}"), Large("pytorch_model.bin", 1000),
                    Large("m-1.safetensors", 5000), Large("m-2.safetensors", 6000),
                    Large("consolidated.safetensors", 7000), Small("sub/config.json", "{}"),
                    Small("model.safetensors.index.json", index.dump())}}});
    const auto pulled = Pull("hf:o/n");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
    std::vector<std::string> names;
    for (const auto& file : pulled->files) names.push_back(file.file.path);
    std::ranges::sort(names);
    EXPECT_EQ(names, (std::vector<std::string>{"config.json", "empty.json", "m-1.safetensors",
                                               "m-2.safetensors", "model.safetensors.index.json",
                                               "tokenizer.json"}));
    EXPECT_EQ(pulled->path, Folder() + "/snapshots/" + kCommit);
    const auto found = hub::FindCached(config_, *hub::ParseSpec("o/n"));
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, pulled->path);
    // A missing shard makes it incomplete.
    fs::remove(pulled->path + "/m-2.safetensors");
    const auto broken = hub::FindCached(config_, *hub::ParseSpec("o/n"));
    ASSERT_FALSE(broken.ok());
    EXPECT_NE(broken.error().message.find("weft pull hf:o/n"), std::string::npos);
}

TEST_F(PullTest, PathsInFolders) {
    server_->Set({{"files",
                   {Large("a/b/x-Q8_0-00001-of-00002.gguf", 70),
                    Large("a/b/x-Q8_0-00002-of-00002.gguf", 80)}}});
    const auto pulled = Pull("o/n@v1:q8_0");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
    EXPECT_EQ(pulled->files.size(), 2u);
    EXPECT_TRUE(pulled->path.ends_with("a/b/x-Q8_0-00001-of-00002.gguf"));
    EXPECT_EQ(*ReadTextFile(Folder() + "/refs/v1"), kCommit);
}

TEST_F(PullTest, BrokenConnections) {
    json cuts = json::array();
    for (const int cut : {100, 0, 1'000'000, 3'333'333, 1, 7'000'000, 65536, 2})
        cuts.push_back(cut);
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}, {"cuts", cuts}});
    const auto pulled = Pull("o/n");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
    EXPECT_EQ(pulled->fetched_bytes, kPullBig);
    EXPECT_LE(Sent(), kPullBig + (16 << 10));  // no byte is sent twice
}

TEST_F(PullTest, BusyServers) {
    server_->Set({{"files", {Large("x.gguf", 100'000)}},
                  {"hub_refuse", {{503, 0}, {429, 1}}},
                  {"refuse", {{429, 1}, {503, 0}, {500, 0}}}});
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Pull("o/n")));
    EXPECT_GE(seconds_, 2.0);  // both had to wait a second
}

TEST_F(PullTest, WaitsAreBounded) {
    config_.SetTimeout(1500);
    server_->Set({{"files", {Large("x.gguf", 100'000)}}, {"refuse", {{429, 3600}}}});
    ExpectError("o/n", ErrorCode::kDenied, "asks to wait 3600 s");
    server_->Set({{"hub_refuse", {{503, 3600}}}});
    ExpectError("o/n", ErrorCode::kIo, "asks to wait 3600 s");
    EXPECT_LE(seconds_, test::LimitSeconds(15));
}

TEST_F(PullTest, TokenGoesToTheHubOnly) {
    config_.token = "hf_secret";
    server_->Set({{"files", {Large("x.gguf", 100'000)}}, {"need_token", "hf_secret"}});
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Pull("o/n")));
    const json tokens = server_->Counted()["tokens"];
    ASSERT_FALSE(tokens["cdn"].empty());
    for (const json& token : tokens["cdn"]) EXPECT_EQ(token, "");
    for (const json& token : tokens["hub"]) EXPECT_EQ(token, "Bearer hf_secret");
}

TEST_F(PullTest, NoAccess) {
    server_->Set({{"files", {Large("x.gguf", 10)}}, {"need_token", "right"}});
    ExpectError("o/n", ErrorCode::kDenied, "set HF_TOKEN");
    config_.token = "wrong";
    ExpectError("o/n", ErrorCode::kDenied, "token that was sent");
    server_->Set({{"gated", true}});
    ExpectError("o/n", ErrorCode::kDenied, "Accept the licence at " + config_.endpoint + "/o/n");
    server_->Set({{"files", {Large("x.gguf", 10)}}});
    ExpectError("o/n@nothing", ErrorCode::kNotFound, "no such repository, revision or file");
    ExpectError("x/y", ErrorCode::kNotFound, "404");
    ExpectError("o/n:Q4_0", ErrorCode::kNotFound, "x.gguf");
}

TEST_F(PullTest, RedirectsInALoopOrToPlainHttp) {
    server_->Set({{"files", {Large("x.gguf", 10)}}, {"loop", true}});
    ExpectError("o/n", ErrorCode::kIo, "redirects");
    server_->Set({{"files", {Large("x.gguf", 10)}}, {"downgrade", true}});
    ExpectError("o/n", ErrorCode::kDenied, "redirects from https to http");
}

TEST_F(PullTest, UntrustedCertificate) {
    config_.ca_file.clear();
    config_.ca_folder = folder_.path();
    server_->Set({{"files", {Large("x.gguf", 10)}}});
    ExpectError("o/n", ErrorCode::kIo, "--cacert");
    EXPECT_TRUE(server_->Counted()["requests"].empty());
}

TEST_F(PullTest, WrongContent) {
    json file = Large("x.gguf", 300'000);
    file["flip"] = true;
    server_->Set({{"files", {file}}});
    ExpectError("o/n", ErrorCode::kCorrupt, "SHA-256");
    EXPECT_TRUE(fs::is_empty(Folder() + "/blobs"));
    file = {{"path", "x.gguf"}, {"text", std::string(200, 'x')}, {"flip", true}};
    server_->Set({{"files", {file}}});
    ExpectError("o/n", ErrorCode::kCorrupt, "its git blob hash");
    file = Large("x.gguf", 300'000);
    file["listed_hash"] = std::string(64, '1');
    server_->Set({{"files", {file}}});
    ExpectError("o/n", ErrorCode::kCorrupt, "SHA-256");
    EXPECT_TRUE(fs::is_empty(Folder() + "/blobs"));
}

TEST_F(PullTest, WrongSize) {
    for (const uint64_t size : {kPullBig / 2, kPullBig * 2, uint64_t{10}}) {
        json file = Large("x.gguf", kPullBig);
        file["listed_size"] = size;
        server_->Set({{"files", {file}}});
        ExpectError("o/n", ErrorCode::kCorrupt, "according to the listing");
    }
    EXPECT_TRUE(fs::is_empty(Folder() + "/blobs"));
}

TEST_F(PullTest, ServerWithoutRanges) {
    server_->Set(
        {{"files", {Large("x.gguf", kPullBig)}}, {"no_range", true}, {"cuts", {0, 9'000'000}}});
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Pull("o/n")));
}

TEST_F(PullTest, Stalls) {
    config_.SetTimeout(1200);
    server_->Set({{"files", {Large("x.gguf", 100'000)}}, {"silent", true}});
    ExpectError("o/n", ErrorCode::kTimeout, "given up");
    EXPECT_LE(seconds_, test::LimitSeconds(15));
    server_->Set({{"files", {Large("x.gguf", 100'000)}}, {"rate", 200}});
    ExpectError("o/n", ErrorCode::kTimeout, "1 KiB/s");
    EXPECT_LE(seconds_, test::LimitSeconds(15));
    server_->Set({{"files", {Large("x.gguf", 100'000)}}});
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Pull("o/n")));  // the received data is right
}

// Each connection is slower than the amount that it writes at once, but bytes arrive.
TEST_F(PullTest, SlowConnectionsAreNoStall) {
    config_.SetTimeout(1000);
    std::atomic<bool> stop{false};
    config_.stop = &stop;
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}, {"rate", 20'000}});
    const int64_t begin_ns = NowNs();
    const auto pulled = hub::Pull(config_, *hub::ParseSpec("o/n"), [&](const auto&) {
        if (SecondsSince(begin_ns) > 2) stop = true;
    });
    ASSERT_FALSE(pulled.ok());
    EXPECT_EQ(static_cast<int>(pulled.error().code), static_cast<int>(ErrorCode::kCancelled))
        << pulled.error().message;
}

TEST_F(PullTest, ServerDown) {
    config_.SetTimeout(1000);
    config_.endpoint = "https://127.0.0.1:1";
    ExpectError("o/n", ErrorCode::kIo, "127.0.0.1");
    EXPECT_LE(seconds_, test::LimitSeconds(15));
}

TEST_F(PullTest, HostileListings) {
    json file = Small("x.gguf", "text");
    for (const char* path : {"../x.gguf", "/etc/x", "a/../../x.gguf", "a//x", "", "x\ny", "."}) {
        file["listed_path"] = path;
        server_->Set({{"files", {file}}});
        ExpectError("o/n", ErrorCode::kCorrupt, "refused");
    }
    server_->Set({{"huge_tree", true}});
    ExpectError("o/n", ErrorCode::kUnsupported, "more than");
    server_->Set({{"raw_tree", std::string(1 << 20, '[')}});
    ExpectError("o/n", ErrorCode::kCorrupt, "not a list");
    server_->Set({{"files", {Small("a", "a"), Small("b", "b")}},
                  {"page", 1},
                  {"next_host", "https://127.0.0.1:1"}});
    ExpectError("o/n:a", ErrorCode::kDenied, "another host");
    EXPECT_FALSE(fs::exists(folder_ / "x.gguf"));
}

TEST_F(PullTest, ResumesFromAPartialFile) {
    std::atomic<bool> stop{false};
    config_.stop = &stop;
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}, {"rate", 6 << 20}});
    const auto spec = hub::ParseSpec("o/n");
    const auto first = hub::Pull(config_, *spec, [&](const hub::PullState& state) {
        if (state.there_bytes > kPullBig / 4) stop = true;
    });
    ASSERT_FALSE(first.ok());
    EXPECT_EQ(static_cast<int>(first.error().code), static_cast<int>(ErrorCode::kCancelled));
    stop = false;
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}});
    const auto pulled = Pull("o/n");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
    EXPECT_GE(pulled->files[0].resumed_bytes, kPullBig / 4);
    EXPECT_EQ(pulled->files[0].resumed_bytes + pulled->fetched_bytes, kPullBig);
    EXPECT_EQ(Sent(), pulled->fetched_bytes);
}

// All bytes are there, but the program was killed before it had hashed them.
TEST_F(PullTest, StopsWhileItHashes) {
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}});
    const auto whole = Pull("o/n");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(whole));
    const hub::RepoFile& file = whole->files[0].file;
    const std::string part = fs::canonical(whole->path).string() + hub::kPartSuffix;
    fs::rename(fs::canonical(whole->path), part);
    hub::PartNote note;
    note.hash = file.hash;
    note.size = file.bytes;
    note.done.Add({0, file.bytes});
    std::ofstream(part + hub::kNoteSuffix) << hub::PrintNote(note);
    std::atomic<bool> stop{false};
    config_.stop = &stop;
    const auto stopped = hub::Pull(config_, *hub::ParseSpec("o/n"),
                                   [&](const auto& state) { stop = state.there_bytes > 0; });
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(static_cast<int>(stopped.error().code), static_cast<int>(ErrorCode::kCancelled));
    stop = false;
    const auto pulled = Pull("o/n");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
    EXPECT_EQ(pulled->fetched_bytes, 0u);
}

// The Hub's hash identifies the content. The servers of a mirror may have different ETags.
TEST_F(PullTest, StartsOverOnlyWhenTheContentChanged) {
    for (const bool content_too : {false, true}) {
        json file = Large("x.gguf", kPullBig);
        std::atomic<bool> stop{false};
        config_.stop = &stop;
        server_->Set({{"files", {file}}, {"rate", 6 << 20}});
        const auto spec = hub::ParseSpec("o/n");
        const auto first = hub::Pull(config_, *spec, [&](const hub::PullState& state) {
            if (state.there_bytes > kPullBig / 8) stop = true;
        });
        ASSERT_FALSE(first.ok());
        stop = false;
        if (content_too) file["salt"] = "changed";
        server_->Set({{"files", {file}}, {"etag", {"\"cdn-2\"", "\"cdn-3\""}}});
        const auto pulled = Pull("o/n");
        ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
        EXPECT_EQ(pulled->files[0].resumed_bytes > 0, !content_too);
        EXPECT_EQ(Sent(), kPullBig - pulled->files[0].resumed_bytes);
        config_.stop = nullptr;
        fs::remove_all(config_.cache);
    }
}

// Bytes on disk that differ from the note, as a machine crash can leave them.
TEST_F(PullTest, RestartsWhenThePartialFileIsWrong) {
    std::atomic<bool> stop{false};
    config_.stop = &stop;
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}, {"rate", 6 << 20}});
    const auto first = hub::Pull(config_, *hub::ParseSpec("o/n"), [&](const auto& state) {
        if (state.there_bytes > kPullBig / 4) stop = true;
    });
    ASSERT_FALSE(first.ok());
    stop = false;
    for (const auto& entry : fs::directory_iterator(Folder() + "/blobs")) {
        if (!entry.path().string().ends_with(".incomplete")) continue;
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.write("wrong", 5);
    }
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}});
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Pull("o/n")));
}

TEST_F(PullTest, TwoAtOnceDownloadOnce) {
    server_->Set({{"files", {Large("x.gguf", 8 << 20)}}, {"rate", 4 << 20}});
    Result<hub::Pulled> other = MakeError(ErrorCode::kIo, "not run");
    hub::Config config = config_;
    std::thread thread([&] { other = hub::Pull(config, *hub::ParseSpec("o/n"), {}); });
    const auto pulled = Pull("o/n");
    thread.join();
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(other));
    EXPECT_EQ(Sent(), 8u << 20);
}

// A pulled model and its lock, which another program seems to hold.
class LockedPull : public PullTest {
  protected:
    void SetUp() override {
        PullTest::SetUp();
        config_.SetTimeout(800);
        server_->Set({{"files", {Large("x.gguf", 1000)}}});
        const auto spec = hub::ParseSpec("o/n");
        ASSERT_TRUE(Pull("o/n").ok());
        found_ = hub::FindCached(config_, *spec).value();
        file_.hash = fs::read_symlink(found_).filename();
        auto lock = hub::BlobLock::Take(config_, *spec, file_, {});
        ASSERT_TRUE(lock.ok());
        lock_.emplace(*std::move(lock));
    }
    std::string found_;
    hub::RepoFile file_;
    std::optional<hub::BlobLock> lock_;
};

TEST_F(LockedPull, LockThatIsNeverReleased) {
    fs::remove(hub::BlobPath(Folder(), file_));
    ExpectError("o/n", ErrorCode::kTimeout, "holds the lock");
}

// A success always has the bytes: servers of a mirror with ETags of their own can't give a part.
TEST_F(PullTest, EtagsThatKeepChangingFailAShard) {
    const json files = {Large("x.gguf", kPullBig)};
    const hub::ByteRange wanted{8 << 20, (8 << 20) + 1000};
    for (const int etags : {1, 2, 3}) {
        json turns = json::array();
        for (int i = 0; i < etags; ++i) turns.push_back(fmt::format("\"cdn-{}\"", i));
        server_->Set({{"files", files}, {"etag", turns}});
        const auto shard = PullRanges({"x.gguf"}, wanted);
        ASSERT_EQ(shard.ok(), etags == 1) << etags;
        if (shard.ok()) {
            const auto held = hub::HeldRanges(shard->path);
            ASSERT_TRUE(held.ok() && held->has_value());
            EXPECT_TRUE((*held)->Contains(wanted));
            EXPECT_TRUE((*held)->Contains({0, 1000}));
        } else {
            EXPECT_NE(shard.error().message.find("ETag changes from answer to answer"),
                      std::string::npos)
                << shard.error().message;
        }
        fs::remove_all(config_.cache);
    }
    // The servers agree from the second round on.
    json turns = {"\"cdn-1\"", "\"cdn-1\""};
    for (int i = 0; i < 100; ++i) turns.push_back("\"cdn-2\"");
    server_->Set({{"files", files}, {"etag", turns}});
    const auto shard = PullRanges({"x.gguf"}, wanted);
    ASSERT_TRUE(shard.ok()) << shard.error().message;
    const auto held = hub::HeldRanges(shard->path);
    ASSERT_TRUE(held.ok() && held->has_value());
    EXPECT_TRUE((*held)->Contains(wanted) && (*held)->Contains({0, 1000}));
}

// A shard that a rank could open stays while the whole model is pulled, wherever that is stopped.
TEST_F(PullTest, AShardStaysUsableDuringAWholePull) {
    json files = {Small("config.json", "{}")};
    json map;
    std::vector<std::string> names;
    for (int i = 0; i < 4; ++i) {
        const std::string name = fmt::format("m-{}.safetensors", i);
        names.push_back(name);
        files.push_back(Large(name, 3 << 20));
        map[fmt::format("t{}", i)] = name;
    }
    files.push_back(Small("model.safetensors.index.json", json({{"weight_map", map}}).dump()));
    server_->Set({{"files", files}, {"rate", 20 << 20}});
    const hub::ByteRange wanted{2 << 20, (2 << 20) + 1000};
    const auto spec = hub::ParseSpec("o/n");
    const auto shard = PullRanges(names, wanted);
    ASSERT_TRUE(shard.ok()) << shard.error().message;
    const auto check = [&] {
        for (const std::string& name : names) {
            const std::string path = shard->path + "/" + name;
            ASSERT_TRUE(fs::exists(path)) << path;
            const auto held = hub::HeldRanges(path);
            ASSERT_TRUE(held.ok()) << held.error().message;
            EXPECT_TRUE(!held->has_value() || (*held)->Contains(wanted));
        }
        EXPECT_TRUE(hub::FindCached(config_, *spec).ok());
    };
    std::atomic<bool> stop{false};
    config_.stop = &stop;
    size_t stops = 0;
    for (bool whole = false; !whole; ++stops) {
        ASSERT_LT(stops, 20u);
        stop = false;
        const auto pulled = hub::Pull(config_, *spec, [&](const hub::PullState& state) {
            if (state.fetched_bytes > (2 << 20)) stop = true;  // after a file or two
            check();
        });
        whole = pulled.ok();
        check();
    }
    EXPECT_GT(stops, 2u);
}

// A later download of something else moves refs/main to a snapshot without the model.
TEST_F(PullTest, ModelOfAnOlderSnapshotIsFound) {
    server_->Set({{"files", {Large("x-Q4_0.gguf", 1000), Large("x-Q8_0.gguf", 2000)}}});
    const auto pulled = Pull("o/n:Q4_0");
    ASSERT_TRUE(pulled.ok()) << pulled.error().message;
    const std::string later(40, 'b'), other = Folder() + "/snapshots/" + later;
    fs::create_directories(other);
    std::ofstream(other + "/tokenizer.json") << "{}";
    std::ofstream(Folder() + "/refs/main") << later;
    std::string older;
    const auto found = hub::FindCached(config_, *hub::ParseSpec("o/n:Q4_0"), &older);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, pulled->path);
    EXPECT_NE(older.find("using commit " + std::string(kCommit)), std::string::npos) << older;
    config_.offline = true;
    const auto offline = Pull("o/n:Q4_0");
    ASSERT_TRUE(offline.ok()) << offline.error().message;
    EXPECT_EQ(offline->commit, kCommit);
    ExpectError("o/n:Q8_0", ErrorCode::kDenied, "not in the cache folder");
    ExpectError("o/n@" + later + ":Q4_0", ErrorCode::kDenied, "not in the cache folder");
    // Once the snapshot's own ref is there, it belongs to another revision.
    std::ofstream(Folder() + "/refs/v1") << kCommit;
    ExpectError("o/n:Q4_0", ErrorCode::kDenied, "not in the cache folder");
    EXPECT_TRUE(Pull("o/n@v1:Q4_0").ok());
}

// 'weft rm' of another revision reads all links, and removes contents without one.
TEST_F(LockedPull, LinksAreMadeUnderTheLock) {
    EXPECT_TRUE(Pull("o/n").ok());  // nothing to do
    fs::remove(found_);
    ExpectError("o/n", ErrorCode::kTimeout, "holds the lock");
}

// Earlier data does not help: the server sends everything again, and that counts as progress.
TEST_F(PullTest, ServerThatStopsSupportingRanges) {
    std::atomic<bool> stop{false};
    config_.stop = &stop;
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}, {"rate", 6 << 20}});
    const auto first = hub::Pull(config_, *hub::ParseSpec("o/n"), [&](const auto& state) {
        if (state.there_bytes > kPullBig / 4) stop = true;
    });
    ASSERT_FALSE(first.ok());
    stop = false;
    server_->Set({{"files", {Large("x.gguf", kPullBig)}}, {"no_range", true}});
    const auto pulled = Pull("o/n");
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(pulled));
    EXPECT_EQ(pulled->fetched_bytes, kPullBig);
}

TEST_F(PullTest, DiskFull) {
    json file = Large("x.gguf", 10);
    file["listed_size"] = uint64_t{1} << 49;
    server_->Set({{"files", {file}}});
    ExpectError("o/n", ErrorCode::kIo, "are free");
}

}  // namespace
}  // namespace weft::test

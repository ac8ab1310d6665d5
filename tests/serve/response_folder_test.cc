// Responses in files that two servers share: access, limits, expiry, and damaged files.
#include "serve/api/openai/response_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/temp_dir.h"

namespace weft::serve {
namespace {

namespace fs = std::filesystem;

const std::string kAlice(64, 'a'), kBob(64, 'b');

std::string Id(int number) {
    return "resp_" + std::to_string(number);
}

ResponseStore::Stored StoredAs(const std::string& id, size_t bytes = 5) {
    const Json item{{"role", "user"}, {"content", std::string(bytes, 'x')}};
    return {Json{{"id", id}, {"output", Json::array({Json{{"type", "message"}}})}},
            std::make_shared<const Json>(Json::array({item})), 0};
}

class Folder : public testing::Test {
  protected:
    std::unique_ptr<ResponseFolder> Open(ResponseFolder::Limits limits = {100, 1 << 20, 3600}) {
        return ResponseFolder::Open(path_, limits).value();
    }
    static void Put(ResponseFolder& folder, const std::string& owner, int number,
                    size_t bytes = 5) {
        folder.Put(owner, Id(number), StoredAs(Id(number), bytes));
    }
    // Makes a file older.
    void Age(const std::string& owner, int number, int64_t seconds) {
        const std::string path = path_ + "/" + owner + "/" + Id(number) + ".json";
        timespec now{};
        ::clock_gettime(CLOCK_REALTIME, &now);
        now.tv_sec -= seconds;
        const timespec times[2] = {now, now};
        ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
    }
    size_t Files() const {
        size_t files = 0;
        for (const auto& entry : fs::recursive_directory_iterator(path_)) {
            files += entry.is_regular_file() ? 1 : 0;
        }
        return files;
    }

    test::TempDir dir_;
    const std::string path_ = dir_ / "responses";
};

TEST_F(Folder, AnotherServerFindsAResponse) {
    const auto first = Open(), second = Open();
    Put(*first, kAlice, 1);
    const auto found = second->Get(kAlice, Id(1));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->response["id"], Id(1));
    EXPECT_EQ(found->items->at(0)["content"], "xxxxx");
    EXPECT_GT(found->held_bytes, 0);
    EXPECT_TRUE(second->Remove(kAlice, Id(1)));
    EXPECT_EQ(first->Get(kAlice, Id(1)), nullptr);
    EXPECT_FALSE(first->Remove(kAlice, Id(1)));
    Put(*first, "", 2);
    EXPECT_NE(second->Get("", Id(2)), nullptr) << "servers without keys";
}

TEST_F(Folder, EachOwnerSeesItsOwn) {
    const auto folder = Open();
    Put(*folder, kAlice, 1);
    EXPECT_EQ(folder->Get(kBob, Id(1)), nullptr);
    EXPECT_EQ(folder->Get("", Id(1)), nullptr);
    EXPECT_FALSE(folder->Remove(kBob, Id(1)));
    EXPECT_NE(folder->Get(kAlice, Id(1)), nullptr);
    struct stat info {};
    ASSERT_EQ(::stat((path_ + "/" + kAlice).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700U);
}

TEST_F(Folder, IdsAreNoPaths) {
    const auto folder = Open();
    Put(*folder, kAlice, 1);
    const std::vector<std::string> wrong = {"",
                                            "resp_",
                                            "../resp_1",
                                            "resp_../resp_1",
                                            "resp_1/../resp_1",
                                            "resp_1.json",
                                            "resp_1 ",
                                            "1",
                                            "resp_" + std::string(5000, 'a')};
    for (const std::string& id : wrong) {
        EXPECT_EQ(folder->Get(kAlice, id), nullptr) << id;
        EXPECT_FALSE(folder->Remove(kAlice, id)) << id;
        folder->Put(kAlice, id, StoredAs(id));
    }
    for (const char* owner : {"..", "a/b", "."}) {
        EXPECT_EQ(folder->Get(owner, Id(1)), nullptr);
        Put(*folder, owner, 1);
    }
    EXPECT_EQ(Files(), 1u);
}

TEST_F(Folder, DropsTheOldestOfTheLargestOwner) {
    const auto folder = Open({.count = 4, .bytes = 1 << 20, .age_s = 3600});
    Put(*folder, kBob, 100);
    Age(kBob, 100, 1000);
    for (int i = 0; i < 6; ++i) {
        Put(*folder, kAlice, i);
        Age(kAlice, i, 100 - i);
    }
    folder->Sweep();
    EXPECT_EQ(Files(), 4u);
    EXPECT_NE(folder->Get(kBob, Id(100)), nullptr) << "older, but of a small owner";
    EXPECT_EQ(folder->Get(kAlice, Id(2)), nullptr);
    EXPECT_NE(folder->Get(kAlice, Id(3)), nullptr);
}

TEST_F(Folder, SizeIsBounded) {
    const auto folder = Open({.count = 1000, .bytes = 30'000, .age_s = 3600});
    for (int i = 0; i < 60; ++i) {
        Put(*folder, kAlice, i, 1000);
        uint64_t bytes = 0;
        for (const auto& entry : fs::directory_iterator(path_ + "/" + kAlice)) {
            bytes += entry.file_size();
        }
        EXPECT_LE(bytes, 32'000U);
    }
    EXPECT_GT(Files(), 20u);
    Put(*folder, kAlice, 1000, 40'000);
    EXPECT_EQ(folder->Get(kAlice, Id(1000)), nullptr) << "larger than the limit";
}

TEST_F(Folder, ResponsesExpire) {
    const auto folder = Open({.count = 100, .bytes = 1 << 20, .age_s = 50});
    Put(*folder, kAlice, 1);
    Put(*folder, kAlice, 2);
    Age(kAlice, 1, 60);
    Age(kAlice, 2, 40);
    EXPECT_EQ(folder->Get(kAlice, Id(1)), nullptr);
    EXPECT_NE(folder->Get(kAlice, Id(2)), nullptr);
    folder->Sweep();
    EXPECT_EQ(Files(), 1u);
    Age(kAlice, 2, 60);
    EXPECT_FALSE(folder->Remove(kAlice, Id(2)));
}

TEST_F(Folder, ForeignFilesStay) {
    auto folder = Open();
    Put(*folder, kAlice, 1);
    const std::string part = path_ + "/" + kAlice + "/resp_2.json.0123456789abcdef.tmp";
    for (const std::string& path : {path_ + "/notes", path_ + "/" + kAlice + "/notes", part}) {
        std::ofstream(path) << "text";
        const timespec times[2] = {{1, 0}, {1, 0}};
        ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    }
    folder = Open();  // sweeps
    EXPECT_FALSE(fs::exists(part)) << "the rest of a write that was interrupted";
    EXPECT_TRUE(fs::exists(path_ + "/notes"));
    EXPECT_TRUE(fs::exists(path_ + "/" + kAlice + "/notes"));
}

TEST_F(Folder, DamagedFilesAreAbsent) {
    const auto folder = Open();
    Put(*folder, kAlice, 1);
    const std::string path = path_ + "/" + kAlice + "/" + Id(1) + ".json";
    for (const std::string text :
         {"", "{", "[]", "{}", R"({"response":{"id":"resp_1"},"items":[]})",
          R"({"response":{"id":"resp_1","output":[1]},"items":[]})",
          R"({"response":{"id":"resp_1","output":[]},"items":["a"]})",
          R"({"response":{"id":"resp_2","output":[]},"items":[]})",
          R"({"response":1,"items":[]})"}) {
        std::ofstream(path, std::ios::trunc) << text;
        EXPECT_EQ(folder->Get(kAlice, Id(1)), nullptr) << text;
    }
    fs::remove(path);
    fs::create_directory(path);
    EXPECT_EQ(folder->Get(kAlice, Id(1)), nullptr);
    EXPECT_FALSE(folder->Remove(kAlice, Id(1)));
}

TEST_F(Folder, AFolderThatCannotBeWrittenIsAnError) {
    std::ofstream(path_) << "a file";
    const auto opened = ResponseFolder::Open(path_, {1, 1, 1});
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::kIo);
    EXPECT_NE(opened.error().message.find(path_), std::string::npos);
}

TEST_F(Folder, LimitZeroStoresNothing) {
    const auto folder = Open({.count = 0, .bytes = 1 << 20, .age_s = 3600});
    EXPECT_FALSE(folder->on());
    Put(*folder, kAlice, 1);
    EXPECT_EQ(Files(), 0u);
}

TEST_F(Folder, TwoServersAtOnce) {
    const auto first = Open({.count = 20, .bytes = 1 << 20, .age_s = 3600});
    const auto second = Open({.count = 20, .bytes = 1 << 20, .age_s = 3600});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            ResponseFolder& own = t % 2 == 0 ? *first : *second;
            ResponseFolder& other = t % 2 == 0 ? *second : *first;
            for (int i = 0; i < 100; ++i) {
                Put(own, kAlice, 1000 * t + i, 300);
                const auto found = other.Get(kAlice, Id(1000 * t + i));
                if (found != nullptr) {
                    EXPECT_EQ(found->items->size(), 1u);
                }
                if (i % 3 == 0) other.Remove(kAlice, Id(1000 * t + i / 2));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    first->Sweep();
    EXPECT_LE(Files(), 20u);
}

}  // namespace
}  // namespace weft::serve

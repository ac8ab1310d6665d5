// Replaces a model folder in a process that is killed before one of its writes, renames or
// removals, each in turn: the old model, the new one, or no model remains, and never parts of both.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "base/file.h"
#include "base/output_file.h"
#include "model_files/hf/export.h"
#include "model_files/hf/folder.h"
#include "support/hf_folder.h"
#include "support/nightly.h"
#include "support/temp_dir.h"

namespace {

int g_left = -1;  // operations before the process ends; -1: it does not

void CountOperation() {
    if (g_left >= 0 && g_left-- == 0) ::_exit(9);
}

}  // namespace

// The linker finds these before those of the C library.
extern "C" {
int rename(const char* from, const char* to) noexcept {
    CountOperation();
    return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept {
    CountOperation();
    return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
    CountOperation();
    return ::syscall(SYS_pwrite64, fd, bytes, count, offset);
}
}

namespace weft::model_files::hf {
namespace {

using support::SafeBytes;

// Runs `act` in child processes that end before their operation 0, 1, ..., and `check` after each,
// until one finishes.
template <typename Act, typename Check>
void ForEachEnd(const Act& act, const Check& check) {
    for (int end = 0; end < 1000; ++end) {
        const pid_t child = ::fork();
        if (child == 0) {
            g_left = end;
            const Status done = act();
            g_left = -1;
            ::_exit(done.ok() ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        ASSERT_NE(WEXITSTATUS(status), 1);
        SCOPED_TRACE(end);
        ASSERT_NO_FATAL_FAILURE(check(WEXITSTATUS(status) == 0));
        if (WEXITSTATUS(status) == 0) return;
    }
    FAIL() << "no child finished";
}

// All weights and the text beside them; empty: the folder is refused.
std::string Contents(const std::string& folder) {
    const auto source = OpenFolder(folder);
    if (!source.ok()) return "";
    std::string all;
    for (const TensorInfo& tensor : (*source)->tensors()) {
        std::vector<std::byte> bytes(tensor.bytes);
        const Status read =
            (*source)->ReadRows(tensor, 0, tensor.rows, 0, tensor.cols, bytes, nullptr);
        EXPECT_TRUE(read.ok()) << read.error().message;
        all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    for (const char* beside : {"generation_config.json", "chat_template.jinja"}) {
        const auto text = ReadTextFile(folder + "/" + beside, 1 << 20);
        all += text.ok() ? *text : "(none)";
    }
    return all;
}

// Two models of one shape, of which only the first has a chat template.
class Replaced : public testing::Test {
  protected:
    Replaced() {
        const support::HfGolden golden;
        auto tensors = golden.Tensors("llama");
        for (const char* name : {"old", "new"}) {
            const std::string folder = dir_ / name;
            std::filesystem::create_directories(folder);
            support::WriteText(folder + "/config.json", golden.Text("llama/config"));
            support::WriteText(folder + "/generation_config.json",
                               fmt::format(R"({{"transformers_version": "{}"}})", name));
            support::WriteTensors(folder, tensors);
            for (auto& [tensor, bytes] : tensors) bytes.data[bytes.data.size() - 2] ^= std::byte{1};
        }
        support::WriteText(dir_ / "old/chat_template.jinja", "old");
    }
    Status Export(const std::string& name, uint64_t shard_bytes, bool replace) {
        const auto source = OpenFolder(dir_ / name);
        EXPECT_TRUE(source.ok()) << source.error().message;
        return ExportFolder(
            **source, dir_ / "out",
            {.type = SafeType::kF32, .shard_bytes = shard_bytes, .replace = replace});
    }
    test::TempDir dir_;
};

constexpr uint64_t kWhole = 1 << 30, kShard = 100'000;

TEST_F(Replaced, IsOldOrNewAfterAnyEnd) {
    const std::string old = Contents(dir_ / "old"), fresh = Contents(dir_ / "new");
    ASSERT_NE(old, fresh);
    const std::vector<std::pair<uint64_t, uint64_t>> ways = {
        {kShard, kShard}, {kWhole, kWhole}, {kShard, kWhole}, {kWhole, kShard}};
    for (const auto& [of_old, of_new] : weft::test::Some(ways, 2)) {
        SCOPED_TRACE(of_new);
        int refused = 0;
        ForEachEnd(
            [&] { return Export("new", of_new, true); },
            [&](bool finished) {
                const std::string now = Contents(dir_ / "out");
                EXPECT_TRUE(finished ? now == fresh : now.empty() || now == old || now == fresh);
                refused += now.empty() ? 1 : 0;
                if (finished) return;
                ASSERT_TRUE(Export("old", of_old, true).ok());
                ASSERT_EQ(Contents(dir_ / "out"), old);
            });
        EXPECT_GT(refused, 0);
        std::filesystem::remove_all(dir_ / "out");
    }
}

TEST_F(Replaced, OnlyOnDemand) {
    ASSERT_TRUE(Export("old", kShard, false).ok());
    const std::string before = Contents(dir_ / "out");
    const Status refused = Export("new", kWhole, false);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
    EXPECT_NE(refused.error().message.find("--force"), std::string::npos);
    EXPECT_EQ(Contents(dir_ / "out"), before);
    ASSERT_TRUE(Export("new", kWhole, true).ok());
    EXPECT_EQ(Contents(dir_ / "out"), Contents(dir_ / "new"));
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "out")) {
        EXPECT_EQ(entry.path().filename().string().find("-of-"), std::string::npos) << entry;
    }
}

// --force replaces the model, and no other files of its folder.
TEST_F(Replaced, LeavesOtherFiles) {
    ASSERT_TRUE(Export("old", kShard, false).ok());
    const std::vector<std::string> others = {"model-ema.safetensors", "model_fp32.safetensors",
                                             "adapter_model.safetensors", "README.md"};
    for (const std::string& name : others) support::WriteText(dir_ / ("out/" + name), name);
    ASSERT_TRUE(Export("new", kWhole, true).ok());
    for (const std::string& name : others) {
        const auto text = ReadTextFile(dir_ / ("out/" + name), 100);
        EXPECT_TRUE(text.ok() && *text == name) << name;
    }
    EXPECT_EQ(Contents(dir_ / "out"), Contents(dir_ / "new"));
}

// Any number of files, of which some are new and some are replaced.
TEST(FinishTogether, LeavesOldOrNewOrNoLastFile) {
    const test::TempDir dir;
    const std::vector<std::string> names = {"a", "b", "c"};
    const auto put = [&](const std::string& text, std::span<const std::string> stale) -> Status {
        std::vector<OutputFile> files;
        for (const std::string& name : names) {
            WEFT_ASSIGN(OutputFile file, OutputFile::Create(dir / name, text.size(), true));
            WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(text))));
            files.push_back(std::move(file));
        }
        return FinishTogether(files, stale);
    };
    const std::vector<std::string> stale = {dir / "stale"};
    const auto text = [&](const char* name) {
        const auto read = ReadTextFile(dir / name, 100);
        return read.ok() ? *read : "";
    };
    const auto write_old = [&] {
        ASSERT_TRUE(put("old", {}).ok());
        support::WriteText(dir / "stale", "old");
    };
    write_old();
    ForEachEnd([&] { return put("new", stale); },
               [&](bool finished) {
                   const std::string last = text("c");
                   EXPECT_TRUE(finished ? last == "new" : true);
                   for (const char* name : {"a", "b"}) {
                       EXPECT_TRUE(last.empty() || text(name) == last) << name;
                   }
                   EXPECT_TRUE(last.empty() || text("stale") == (last == "old" ? "old" : ""));
                   if (finished) return;
                   ASSERT_NO_FATAL_FAILURE(write_old());
               });
}

}  // namespace
}  // namespace weft::model_files::hf

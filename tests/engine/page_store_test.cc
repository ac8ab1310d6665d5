// The stores of KV pages outside of the device's memory: what they keep, and damaged folders.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "engine/page_store/folder_store.h"
#include "engine/page_store/ram_store.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBytes = 10'000;

PageKey KeyOf(int number) {
    PageKey key{};
    key[0] = static_cast<uint8_t>(number);
    key[1] = static_cast<uint8_t>(number >> 8);
    return key;
}

PageBytes BytesOf(int number) {
    std::vector<std::byte> bytes(kBytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i * static_cast<size_t>(number + 3));
    }
    return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

bool Gets(PageStore& store, int number) {
    std::vector<std::byte> out(kBytes);
    return store.Get(KeyOf(number), out) && out == *BytesOf(number);
}

std::vector<fs::path> PagesIn(const std::string& folder) {
    std::vector<fs::path> pages;
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == ".page") pages.push_back(entry.path());
    }
    return pages;
}

std::unique_ptr<FolderStore> OpenFolder(const std::string& folder, int64_t most = 1 << 30) {
    auto store = FolderStore::Open(folder, most);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return *std::move(store);
}

// Puts page `number`, and waits until its file is there.
void PutNow(FolderStore& store, int number) {
    store.Put(KeyOf(number), BytesOf(number));
    EXPECT_TRUE(test::Until([&] { return store.Has(KeyOf(number)); })) << number;
}

TEST(RamStore, ForgetsTheLeastRecentlyUsed) {
    RamStore store(3 * kBytes);
    for (int i = 0; i < 3; ++i) store.Put(KeyOf(i), BytesOf(i));
    EXPECT_TRUE(Gets(store, 0));
    store.Put(KeyOf(3), BytesOf(3));
    EXPECT_TRUE(Gets(store, 0));
    EXPECT_FALSE(Gets(store, 1));
    EXPECT_TRUE(Gets(store, 2));
    EXPECT_TRUE(Gets(store, 3));
    EXPECT_EQ(store.counts().held_bytes, static_cast<int64_t>(3 * kBytes));
    std::vector<std::byte> other(kBytes - 1);
    EXPECT_FALSE(store.Get(KeyOf(3), other)) << "a page of another size";
}

// A use in the device's memory counts, too.
TEST(RamStore, PagesInUseStay) {
    RamStore store(3 * kBytes);
    for (int i = 0; i < 20; ++i) {
        store.Put(KeyOf(i), BytesOf(i));
        store.Touch(KeyOf(0));
    }
    store.Touch(KeyOf(99));
    EXPECT_TRUE(Gets(store, 0));
    EXPECT_TRUE(Gets(store, 19));
    EXPECT_FALSE(store.Has(KeyOf(99)));
}

TEST(FolderStore, KeepsPagesForTheNextProcess) {
    const test::TempDir dir;
    const std::string folder = dir / "deep/pages/";
    {
        const auto store = OpenFolder(folder);
        EXPECT_FALSE(store->Has(KeyOf(1)));
        for (int i = 0; i < 20; ++i) store->Put(KeyOf(i), BytesOf(i));
        EXPECT_TRUE(store->IsKept(KeyOf(19)));
    }
    struct stat info {};
    ASSERT_EQ(::stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    EXPECT_EQ(PagesIn(folder).size(), 20u);
    ASSERT_EQ(::stat(PagesIn(folder)[0].c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    const auto store = OpenFolder(folder);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(Gets(*store, i)) << i;
    EXPECT_EQ(store->counts().read_bytes, static_cast<int64_t>(20 * kBytes));
    std::vector<std::byte> other(kBytes - 1);
    EXPECT_FALSE(store->Get(KeyOf(3), other)) << "a page of another size";
}

// Any flipped byte, a cut or foreign file, a link and a pipe are misses, and go away.
TEST(FolderStore, DamageIsAMiss) {
    const test::TempDir dir;
    const auto store = OpenFolder(dir.path());
    PutNow(*store, 1);
    const fs::path page = PagesIn(dir.path())[0];
    const auto size = static_cast<int64_t>(fs::file_size(page));
    int64_t damaged = 0;
    for (const int64_t at : {0, 8, 12, 13, 16, 47, 48, 55, 56, 57, 5000, int{kBytes} + 55}) {
        PutNow(*store, 1);
        ASSERT_TRUE(Gets(*store, 1));
        std::fstream file(page, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(at);
        const int byte = file.get();
        file.seekp(at);
        file.put(static_cast<char>(byte ^ 4));
        file.close();
        EXPECT_FALSE(Gets(*store, 1)) << "byte " << at;
        EXPECT_FALSE(fs::exists(page)) << "byte " << at;
        EXPECT_EQ(store->counts().damaged, ++damaged);
    }
    for (const int64_t cut : {int64_t{0}, int64_t{20}, int64_t{56}, size - 1, size + 1}) {
        PutNow(*store, 1);
        fs::resize_file(page, static_cast<uint64_t>(cut));
        EXPECT_FALSE(Gets(*store, 1)) << "cut to " << cut;
    }
    PutNow(*store, 1);
    PutNow(*store, 2);
    fs::copy_file(page, PagesIn(dir.path())[PagesIn(dir.path())[0] == page ? 1 : 0],
                  fs::copy_options::overwrite_existing);
    EXPECT_FALSE(Gets(*store, 2)) << "the page of another key";
    fs::rename(page, dir / "elsewhere");
    fs::create_symlink(dir / "elsewhere", page);
    EXPECT_FALSE(Gets(*store, 1)) << "a link";
    EXPECT_FALSE(store->Has(KeyOf(1)));
    fs::remove(page);
    ASSERT_EQ(::mkfifo(page.c_str(), 0600), 0);
    EXPECT_FALSE(Gets(*store, 1)) << "a pipe";
}

// Two servers write at once. The folder stays within its limit, and keeps what was used last.
// Other files in it stay.
TEST(FolderStore, StaysWithinItsLimit) {
    const test::TempDir dir;
    std::ofstream(dir / "notes.txt") << "mine";
    std::ofstream(dir / "0123.page") << "mine, too";
    constexpr int64_t kLimit = 40 * kBytes;
    const auto one = OpenFolder(dir.path(), kLimit), other = OpenFolder(dir.path(), kLimit);
    for (int i = 0; i < 100; ++i) {
        PutNow(i % 2 == 0 ? *one : *other, i);
        int64_t bytes = 0;
        for (const fs::path& page : PagesIn(dir.path())) {
            bytes += static_cast<int64_t>(fs::file_size(page));
        }
        ASSERT_LE(bytes, kLimit) << i;
        timespec old[2] = {{1000 + i, 0}, {1000 + i, 0}};
        for (const fs::path& page : PagesIn(dir.path())) {
            if (i == 50) ::utimensat(AT_FDCWD, page.c_str(), old, 0);
        }
        EXPECT_TRUE(i != 50 || Gets(*one, 49));
    }
    EXPECT_TRUE(Gets(*other, 99));
    EXPECT_TRUE(Gets(*other, 90));
    EXPECT_FALSE(Gets(*other, 0));
    EXPECT_TRUE(fs::exists(dir / "notes.txt"));
    EXPECT_TRUE(fs::exists(dir / "0123.page"));
}

// The folder may be removed while the server runs.
TEST(FolderStore, OutlivesItsFolder) {
    const test::TempDir dir;
    const std::string folder = dir / "pages";
    const auto store = OpenFolder(folder);
    PutNow(*store, 1);
    fs::remove_all(folder);
    EXPECT_FALSE(Gets(*store, 1));
    PutNow(*store, 1);
    EXPECT_TRUE(Gets(*store, 1));
}

// Pages removed by this process to stay within the limit, by another process or by the user are
// written again. The store's records do not grow with the number of pages ever written.
TEST(FolderStore, WritesAgainWhatIsGone) {
    const test::TempDir dir;
    const std::string folder = dir / "pages";
    constexpr int64_t kLimit = 40 * kBytes;
    const auto store = OpenFolder(folder, kLimit), other = OpenFolder(folder, kLimit);
    PutNow(*store, 0);
    for (int i = 1; i <= 200 && store->Has(KeyOf(0)); ++i) PutNow(*store, i);
    ASSERT_FALSE(store->Has(KeyOf(0)));
    EXPECT_TRUE(test::Until([&] { return !store->IsKept(KeyOf(0)); }));
    for (int i = 100; i <= 200; ++i) PutNow(*store, i);
    EXPECT_LE(store->known(), 45u);
    PutNow(*store, 0);
    for (int i = 301; i <= 400; ++i) PutNow(*other, i);
    ASSERT_FALSE(store->Has(KeyOf(0)));
    PutNow(*store, 0);
    EXPECT_LE(store->known(), 5u);
    for (const fs::path& page : PagesIn(folder)) fs::remove(page);
    PutNow(*store, 0);
    PutNow(*store, 200);
    fs::remove_all(folder);
    PutNow(*store, 0);
    PutNow(*store, 0);
    EXPECT_TRUE(Gets(*store, 0));
}

// A page whose file was removed is written again even while an update of its time is queued. (A
// large page keeps the writing thread busy meanwhile.)
TEST(FolderStore, PutsAPageWhoseTimeIsToBeChanged) {
    const test::TempDir dir;
    { PutNow(*OpenFolder(dir.path()), 1); }
    const fs::path file = PagesIn(dir.path()).at(0);
    const auto store = OpenFolder(dir.path());
    const timespec used{std::time(nullptr) - FolderStore::kRecentS, 0};
    const timespec times[2] = {used, used};
    ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
    EXPECT_TRUE(Gets(*store, 1));
    fs::remove(file);
    store->Put(KeyOf(2), std::make_shared<std::vector<std::byte>>(size_t{64} << 20));
    store->Touch(KeyOf(1));
    store->Put(KeyOf(1), BytesOf(1));
    EXPECT_TRUE(test::Until([&] { return store->Has(KeyOf(1)); }));
    EXPECT_TRUE(Gets(*store, 1));
}

// Pages in use in the device's memory, such as those of a common beginning, are removed last; of
// one text, its first pages are.
TEST(FolderStore, PagesInUseStay) {
    const test::TempDir dir;
    const auto store = OpenFolder(dir.path(), 40 * kBytes);
    for (int i = 0; i < 100; ++i) {
        PutNow(*store, i);
        for (const int used : {2, 1, 0}) store->Touch(KeyOf(used));
        store->Touch(KeyOf(1000));
        ASSERT_TRUE(store->Has(KeyOf(0))) << i;
    }
    EXPECT_TRUE(Gets(*store, 0) && Gets(*store, 1) && Gets(*store, 2));
    EXPECT_FALSE(store->Has(KeyOf(3)));
    EXPECT_FALSE(store->Has(KeyOf(1000)));
}

// A process that was killed while it wrote leaves a file under another name.
TEST(FolderStore, RemovesAbandonedFiles) {
    const test::TempDir dir;
    const std::string name = dir / (Hex(KeyOf(1)) + ".page.0123456789abcdef.tmp");
    std::ofstream(name) << "a part of a page";
    OpenFolder(dir.path()).reset();
    EXPECT_TRUE(fs::exists(name)) << "another process may be writing it";
    const timespec old[2] = {{1000, 0}, {1000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, name.c_str(), old, 0), 0);
    OpenFolder(dir.path()).reset();
    EXPECT_FALSE(fs::exists(name));
}

// As on a full disk: files cannot grow. One warning, no file remains, and Put does nothing.
TEST(FolderStore, AFullDiskIsOneWarning) {
    const test::TempDir dir;
    const auto store = OpenFolder(dir.path());
    PutNow(*store, 1);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1000, before.rlim_max};
    testing::internal::CaptureStderr();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 2; i < 9; ++i) store->Put(KeyOf(i), BytesOf(i));
    EXPECT_TRUE(test::Until([&] { return store->counts().dropped == 7; }));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, handler);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("cannot write a page: File too large"), std::string::npos) << log;
    EXPECT_EQ(log.find("cannot write", log.find("cannot write") + 1), std::string::npos) << log;
    EXPECT_TRUE(store->IsKept(KeyOf(9))) << "pages need not be read while nothing is written";
    EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);
    EXPECT_TRUE(Gets(*store, 1));
}

TEST(FolderStore, RefusesAFolderThatOthersWrite) {
    const test::TempDir dir;
    ASSERT_EQ(::chmod(dir.path().c_str(), 0770), 0);
    const auto store = FolderStore::Open(dir.path(), 1 << 30);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, ErrorCode::kDenied);
    EXPECT_NE(store.error().message.find("chmod 700"), std::string::npos);
    std::ofstream(dir / "file") << "x";
    EXPECT_EQ(FolderStore::Open(dir / "file", 1 << 30).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace weft::engine

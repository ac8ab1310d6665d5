#include "engine/page_store/slot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "base/confine.h"
#include "base/crc32c.h"
#include "base/output_file.h"
#include "base/utf8.h"

namespace weft::engine {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 26, kMostPageBytes = int64_t{1} << 34,
                  kMostStateBytes = int64_t{1} << 40;
// Entries that are read from the device at once.
constexpr int64_t kRunBytes = int64_t{16} << 20;

struct Header {
    std::array<char, 8> magic{'w', 'e', 'f', 't', 's', 'l', 'o', 't'};
    uint32_t format = 1;
    uint32_t crc = 0;  // of the fields below, the tokens and the CRCs of the entries
    Sha256Digest set{}, model{}, job{};
    int64_t adapter = 0, tokens = 0, pages = 0, page_bytes = 0, state_bytes = 0;
};
static_assert(sizeof(Header) == 152);

int64_t EntriesOf(const SlotHead& head) {
    return head.pages + (head.state_bytes > 0 ? 1 : 0);
}

int64_t FirstByte(const SlotHead& head) {
    return static_cast<int64_t>(sizeof(Header)) + 4 * std::ssize(head.tokens) + 4 * EntriesOf(head);
}

uint32_t HeadCrc(const Header& header, std::span<const int32_t> tokens,
                 std::span<const uint32_t> crcs) {
    const auto fields = std::as_bytes(std::span(&header, 1)).subspan(offsetof(Header, set));
    return Crc32c(std::as_bytes(crcs), Crc32c(std::as_bytes(tokens), Crc32c(fields)));
}

// Reads `out.size()` bytes at `at`. Returns errno; EIO: the file is too short.
int ReadAt(int fd, int64_t at, std::span<std::byte> out) {
    while (!out.empty()) {
        const ssize_t got = ::pread(fd, out.data(), out.size(), at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? errno : EIO;
        out = out.subspan(static_cast<size_t>(got));
        at += got;
    }
    return 0;
}

}  // namespace

int64_t SlotFileBytes(const SlotHead& head) {
    return FirstByte(head) + head.pages * head.page_bytes + head.state_bytes;
}

bool IsSlotName(std::string_view name) {
    constexpr size_t kMostBytes = 200;  // of 255, for the suffixes of files
    constexpr std::string_view kRefused = "\\:*?\"<>|";
    const size_t slash = name.find('/');
    if (slash != std::string_view::npos) {
        return name.find('/', slash + 1) == std::string_view::npos &&
               IsSlotName(name.substr(0, slash)) && IsSlotName(name.substr(slash + 1));
    }
    const auto fits = [&](unsigned char c) {
        return c >= ' ' && c != 0x7f && kRefused.find(static_cast<char>(c)) == kRefused.npos;
    };
    // (The files of other ranks end with .rankN, unfinished ones with .part.)
    const size_t suffix = name.rfind('.');
    const std::string_view last = name.substr(suffix == name.npos ? name.size() : suffix);
    return !name.empty() && name.size() <= kMostBytes && name.front() != '.' &&
           name.front() != ' ' && name.back() != ' ' && IsUtf8(name) &&
           std::ranges::all_of(name, fits) && !last.starts_with(".rank") && last != ".part";
}

namespace {

// Checks that saving destroys nothing: PATH and PATH.part are absent or Weft's own, and an empty
// slot does not replace a conversation.
Status CheckReplaces(const std::string& path, const SlotHead& head) {
    const Header own;
    for (const std::string& name : {path, path + ".part"}) {
        const Fd fd(::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
        if (!fd.valid() && errno == ENOENT) continue;
        Header there;
        // (An unfinished file has zeros in place of its header.)
        there.magic = {};
        struct stat info {};
        const bool regular = fd.valid() && ::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode);
        if (regular && info.st_size > 0) {
            (void)ReadAt(fd.get(), 0, std::as_writable_bytes(std::span(&there, 1)));
        }
        const bool unfinished = name != path && there.magic == decltype(there.magic){};
        if (!regular || (info.st_size > 0 && there.magic != own.magic && !unfinished)) {
            return MakeError(ErrorCode::kUsage,
                             "{}: there is a file that Weft did not save with /slots. Choose "
                             "another name, or remove the file",
                             name);
        }
        const bool loses = name == path && head.tokens.empty() && EntriesOf(head) == 0 &&
                           there.magic == own.magic && there.tokens > 0;
        if (!loses) continue;
        return MakeError(ErrorCode::kUsage,
                         "{}: the slot is empty now, and the file has {} tokens. Save under "
                         "another name, or remove the file",
                         name, there.tokens);
    }
    return {};
}

}  // namespace

Result<OutputFile> WriteSlotFile(const std::string& path, const SlotHead& head,
                                 const ReadEntries& read) {
    WEFT_TRY(CheckReplaces(path, head));
    WEFT_ASSIGN(OutputFile file,
                OutputFile::Create(path, static_cast<uint64_t>(SlotFileBytes(head)), true));
    ::chmod((path + ".part").c_str(), S_IRUSR | S_IWUSR);  // it holds a conversation
    const int64_t count = EntriesOf(head);
    const int64_t at_once = std::max<int64_t>(1, kRunBytes / std::max<int64_t>(1, head.page_bytes));
    std::vector<uint32_t> crcs;
    auto at = static_cast<uint64_t>(FirstByte(head));
    for (int64_t first = 0; first < count; first += at_once) {
        std::vector<std::vector<std::byte>> run(
            static_cast<size_t>(std::min(at_once, count - first)));
        WEFT_TRY(read(first, run));
        for (const std::vector<std::byte>& entry : run) {
            WEFT_TRY(file.WriteAt(at, entry));
            crcs.push_back(Crc32c(entry));
            at += entry.size();
        }
    }
    Header header;
    header.set = head.set;
    header.model = head.model;
    header.job = head.job;
    header.adapter = head.adapter;
    header.tokens = std::ssize(head.tokens);
    header.pages = head.pages;
    header.page_bytes = head.page_bytes;
    header.state_bytes = head.state_bytes;
    header.crc = HeadCrc(header, head.tokens, crcs);
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(&header, 1))));
    WEFT_TRY(file.WriteAt(sizeof header, std::as_bytes(std::span(head.tokens))));
    WEFT_TRY(file.WriteAt(sizeof header + 4 * head.tokens.size(), std::as_bytes(std::span(crcs))));
    return file;
}

Error SlotFile::Damaged(std::string_view what) const {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: the file is damaged ({}). Save the slot again, or copy the file again",
                     path_, what);
}

Result<std::shared_ptr<SlotFile>> SlotFile::Open(const std::string& path) {
    auto file = std::make_shared<SlotFile>();
    file->path_ = path;
    file->fd_ = Fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file->fd_.valid()) {
        const int error = errno;
        return MakeError(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", path,
                         std::strerror(error));
    }
    WEFT_TRY(CheckOpened(file->fd_.get(), path));
    struct stat info {};
    if (::fstat(file->fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
        return MakeError(ErrorCode::kCorrupt, "{}: it is not a regular file", path);
    }
    WEFT_TRY(file->ReadHead(info.st_size));
    return file;
}

Status SlotFile::ReadHead(int64_t file_bytes) {
    Header header;
    const Header expected;
    const bool whole = ReadAt(fd_.get(), 0, std::as_writable_bytes(std::span(&header, 1))) == 0;
    if (!whole || header.magic != expected.magic) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: this is not a file that Weft saved with /slots; files of other "
                         "programs do not fit",
                         path_);
    }
    if (header.format != expected.format) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: its format is {}; this version of Weft reads format {}", path_,
                         header.format, expected.format);
    }
    const auto within = [](int64_t value, int64_t most) { return value >= 0 && value <= most; };
    if (!within(header.tokens, kMostTokens) || !within(header.pages, kMostTokens) ||
        !within(header.page_bytes, kMostPageBytes) ||
        !within(header.state_bytes, kMostStateBytes)) {
        return Damaged("its sizes are out of range");
    }
    head_ = {header.set, header.model, header.job,        header.adapter,
             {},         header.pages, header.page_bytes, header.state_bytes};
    // Before memory is taken: the file holds all that its head names.
    if (SlotFileBytes(head_) + 4 * header.tokens != file_bytes) return Damaged("its size is wrong");
    head_.tokens.resize(static_cast<size_t>(header.tokens));
    crcs_.resize(static_cast<size_t>(EntriesOf(head_)));
    first_byte_ = FirstByte(head_);
    const std::span<std::byte> tokens = std::as_writable_bytes(std::span(head_.tokens));
    const int64_t at_crcs = static_cast<int64_t>(sizeof header) + std::ssize(tokens);
    if (ReadAt(fd_.get(), sizeof header, tokens) != 0 ||
        ReadAt(fd_.get(), at_crcs, std::as_writable_bytes(std::span(crcs_))) != 0 ||
        header.crc != HeadCrc(header, head_.tokens, crcs_)) {
        return Damaged("its head has a wrong checksum");
    }
    return {};
}

int64_t SlotFile::bytes_of(int64_t entry) const {
    return entry < head_.pages ? head_.page_bytes : head_.state_bytes;
}

bool SlotFile::Read(int64_t entry, std::span<std::byte> out) const {
    if (entry >= entries() || !std::cmp_equal(out.size(), bytes_of(entry))) return false;
    return ReadAt(fd_.get(), first_byte_ + entry * head_.page_bytes, out) == 0 &&
           Crc32c(out) == crcs_[static_cast<size_t>(entry)];
}

Status SlotFile::Verify(std::atomic<int64_t>& progress) const {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < entries(); ++i) {
        bytes.resize(static_cast<size_t>(bytes_of(i)));
        if (!Read(i, bytes)) return Damaged("a page has a wrong checksum");
        progress.fetch_add(1, std::memory_order_relaxed);
    }
    return {};
}

void SlotFiles::Add(std::shared_ptr<SlotFile> file, std::span<const PageKey> keys) {
    for (size_t i = 0; i < keys.size(); ++i) places_[keys[i]] = {file, static_cast<int64_t>(i)};
    counts_.held_bytes += SlotFileBytes(file->head());
    files_.push_back(std::move(file));
    if (files_.size() > kMostFiles) {
        std::erase_if(places_, [&](const auto& at) { return at.second.file == files_.front(); });
    }
    // An open file keeps its space on the disk after another has its name.
    std::set<const SlotFile*> used;
    for (const auto& [key, place] : places_) used.insert(place.file.get());
    std::erase_if(files_, [&](const std::shared_ptr<SlotFile>& one) {
        if (used.contains(one.get())) return false;
        counts_.held_bytes -= SlotFileBytes(one->head());
        return true;
    });
}

bool SlotFiles::Get(const PageKey& key, std::span<std::byte> out) {
    const auto place = places_.find(key);
    if (place == places_.end()) return false;
    const bool good = place->second.file->Read(place->second.entry, out);
    if (good) counts_.read_bytes += std::ssize(out);
    if (!good) {
        ++counts_.damaged;
        places_.erase(place);
    }
    return good;
}

}  // namespace weft::engine

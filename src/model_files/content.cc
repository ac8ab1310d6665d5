#include "model_files/content.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <filesystem>
#include <map>
#include <utility>

#include "base/field_codec.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/home_folder.h"
#include "base/log.h"
#include "base/on_threads.h"
#include "base/output_file.h"
#include "hw/cpu.h"
#include "model_files/lora/adapted_source.h"

namespace weft::model_files {
namespace {

constexpr uint64_t kReadBytes = uint64_t{1} << 20;  // of one read
constexpr uint64_t kMostCacheBytes = uint64_t{64} << 20;
constexpr int64_t kNsPerS = 1'000'000'000;
constexpr size_t kSumDigits = 32, kShortDigits = 16;
// A later write within one tick of the kernel's clock would leave the times as they are.
constexpr int64_t kTickNs = 20'000'000;
constexpr size_t kMostEntries = 1000;  // of the cache
// From this size on, a log line names the file that is read: some seconds, from a disk.
constexpr uint64_t kLongRead = uint64_t{1} << 30;

// Types of file systems (statfs(2)) that one machine has for itself. Hosts that were cloned from
// one disk image have equal inodes and times there. Other file systems, also unknown ones, may be
// seen by several machines.
constexpr uint64_t kLocalTypes[] = {
    0xEF53,      // ext2, ext3, ext4
    0x58465342,  // XFS
    0x9123683E,  // btrfs
    0x2FC12FC1,  // ZFS
    0xF2F52010,  // F2FS
    0xCA451A4E,  // bcachefs
    0x01021994,  // tmpfs
    0x858458F6,  // ramfs
    0x958458F6,  // hugetlbfs
    0x794C7630,  // overlayfs
    0x2011BAB0,  // exFAT
    0x4D44,      // FAT
    0x5346544E,  // NTFS
    0x7366746E,  // NTFS3
    0x3153464A,  // JFS
    0x52654973,  // ReiserFS
    0x3434,      // NILFS2
    0x482B,      // HFS+
    0x4244,      // HFS
    0x24051905,  // UBIFS
    0x15013346,  // UDF
    0x9660,      // ISO 9660
    0x73717368,  // squashfs
    0xE0F5E1E2,  // EROFS
};

constexpr auto kFileFields = [](auto& file, auto& visit) {
    visit("path", file.path);
    visit("bytes", file.bytes);
    visit("chunk_bytes", file.chunk_bytes, FieldRange{1, 1e18});
    visit("sums", file.sums);
};

struct CacheEntry {
    std::string stamp;
    std::vector<std::string> sums;
};

constexpr auto kCacheFields = [](auto& entry, auto& visit) {
    visit("stamp", entry.stamp);
    visit("sums", entry.sums);
};

std::string HashOf(const std::string& text) {
    return Hex(Sha256(std::as_bytes(std::span(text))));
}

std::string TextOf(const FileStamp& stamp) {
    return fmt::format("{} {} {} {} {}", stamp.device, stamp.inode, stamp.size_bytes,
                       stamp.modified_ns, stamp.changed_ns);
}

struct Place {
    bool local = true;  // no other machine sees the file
    uint64_t device = 0;
};

// The file system of a file. A device without a disk (major number 0: NFS, btrfs, ZFS) gets
// another number at each boot, so the file system's own id counts, if it has one. (Two mounted
// images of one disk have equal ids, but disks of their own.)
Place PlaceOf(const WeightFile& file) {
    Place place{.device = file.opened().device};
    struct statfs system {};
    if (::statfs(file.path().c_str(), &system) != 0) return place;
    place.local = std::ranges::count(kLocalTypes, static_cast<uint64_t>(system.f_type)) > 0;
    const auto id = std::bit_cast<uint64_t>(system.f_fsid);
    if (id != 0 && ::gnu_dev_major(place.device) == 0) place.device = id;
    return place;
}

// The stamp under which the sums are stored.
FileStamp KeptStamp(const WeightFile& file) {
    FileStamp stamp = file.opened();
    stamp.device = PlaceOf(file).device;
    return stamp;
}

// Whether a later write would give the file other times.
bool IsSettled(const FileStamp& stamp) {
    return stamp.seen_ns - stamp.changed_ns >= kTickNs;
}

// ---- The cache ----------------------------------------------------------------------------------

// "": the user has no cache folder. Hosts that share the folder have entries of their own for local
// files, which may have equal stamps on cloned hosts.
std::string CachePath(const WeightFile& opened) {
    const std::string folder = CacheFolder();
    if (folder.empty()) return "";
    const Place place = PlaceOf(opened);
    std::array<char, 256> host{};
    if (place.local) ::gethostname(host.data(), host.size() - 1);
    const std::string file = fmt::format("{} {}{}{}", place.device, opened.opened().inode,
                                         place.local ? " " : "", host.data());
    return fmt::format("{}/content/{}.json", folder, HashOf(file).substr(0, kShortDigits));
}

// Empty: the cache does not have the sums.
std::vector<std::string> ReadCache(const WeightFile& file) {
    if (file.is_partial()) return {};
    const FileStamp stamp = KeptStamp(file);
    const auto text = ReadTextFile(CachePath(file), kMostCacheBytes);
    CacheEntry entry;
    if (!text.ok() || !DecodeFields("cached sums", *text, kCacheFields, entry).ok()) return {};
    const bool fits =
        entry.stamp == TextOf(stamp) && entry.sums.size() == file.sums().sums().size() &&
        std::ranges::all_of(entry.sums,
                            [](const std::string& sum) { return sum.size() == kSumDigits; });
    return fits ? std::move(entry.sums) : std::vector<std::string>();
}

// Removes the entries that were written first, if there are too many.
void DropOldEntries(const std::filesystem::path& folder) {
    std::error_code gone;
    std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> entries;
    std::filesystem::directory_iterator entry(folder, gone);
    for (; entry != std::filesystem::directory_iterator(); entry.increment(gone)) {
        entries.emplace_back(entry->last_write_time(gone), entry->path());
    }
    if (entries.size() <= kMostEntries) return;
    std::ranges::sort(entries);
    entries.resize(entries.size() - kMostEntries);
    for (const auto& [time, path] : entries) std::filesystem::remove(path, gone);
}

// If the write fails, the next job reads the file again.
void WriteCache(const WeightFile& file, const FileContent& content) {
    const FileStamp stamp = KeptStamp(file);
    const std::string path = CachePath(file);
    if (path.empty() || file.is_partial() || !IsSettled(file.opened())) return;
    const CacheEntry entry{TextOf(stamp), content.sums};
    if (ReplaceFile(path, EncodeFields(entry, kCacheFields)).ok()) {
        return DropOldEntries(std::filesystem::path(path).parent_path());
    }
    Log(LogLevel::kDebug, "the sums of {} could not be kept in {}", file.path(), path);
}

// ---- Reading ------------------------------------------------------------------------------------

// A part of a file whose bytes are to be added to its sums, within one of their ranges.
struct Part {
    const WeightFile* file;
    hub::ByteRange range;
};

std::vector<Part> MissingParts(const WeightFile& file) {
    std::vector<Part> parts;
    for (const hub::ByteRange& held : file.Held()) {
        for (const hub::ByteRange& missing : file.sums().MissingOf(held)) {
            for (uint64_t at = missing.begin; at < missing.end;) {
                const uint64_t end = std::min(missing.end, at - at % kSummedBytes + kSummedBytes);
                parts.push_back({&file, {at, end}});
                at = end;
            }
        }
    }
    return parts;
}

// The sums of a file of which all was read.
FileContent ContentOf(const WeightFile& file) {
    FileContent content{.path = file.path(), .bytes = file.size_bytes(), .sums = {}};
    hub::RangeSet held;
    for (const hub::ByteRange& range : file.Held()) held.Add(range);
    uint64_t begin = 0;
    for (const ByteSum& sum : file.sums().sums()) {
        const uint64_t end = std::min(begin + kSummedBytes, content.bytes);
        const bool whole = held.Contains({begin, end});
        content.sums.push_back(
            fmt::format("{}{:016x}{:016x}", whole ? "" : kPartly, sum.high, sum.low));
        begin = end;
    }
    return content;
}

void WarnOfLongRead(const std::vector<Part>& parts, size_t files, uint64_t all) {
    if (all < kLongRead) return;
    Log(LogLevel::kInfo, "reading {:.1f} GB of {}{}, to compare all bytes of the model",
        static_cast<double>(all) * 1e-9, parts.front().file->path(),
        files == 1 ? "" : fmt::format(" and {} more of its files", files - 1));
}

// Stores the sums of each file once it is read, so that an interrupted read continues with the next
// file. Returns the number of bytes that were read.
Result<uint64_t> ReadParts(const std::vector<Part>& parts, const ReadContentOptions& options) {
    uint64_t all = 0;
    std::map<const WeightFile*, std::atomic<size_t>> left;  // parts
    for (const Part& part : parts) {
        all += part.range.end - part.range.begin;
        ++left[part.file];
    }
    WarnOfLongRead(parts, left.size(), all);
    std::atomic<uint64_t> done{0};
    const Status read = OnThreads(options.threads, parts.size(), [&](size_t i) -> Status {
        std::vector<std::byte> piece(kReadBytes);
        const auto& [file, range] = parts[i];
        for (uint64_t at = range.begin; at < range.end; at += piece.size()) {
            piece.resize(std::min<uint64_t>(kReadBytes, range.end - at));
            WEFT_TRY(file->ReadAt(at, piece));  // adds to the sums
            const uint64_t now = done += piece.size();
            if (options.progress) WEFT_TRY(options.progress(now, all));
        }
        // (Each read has checked that the file is unchanged. Another caller may have turned the
        // sums off.)
        if (--left.at(file) > 0 || !MissingParts(*file).empty()) return {};
        WriteCache(*file, ContentOf(*file));
        return {};
    });
    if (!read.ok()) return read.error();
    return all;
}

// ---- Comparing ----------------------------------------------------------------------------------

bool IsPartly(const std::string& sum) {
    return sum.starts_with(kPartly);
}

// The chunks that differ, of the chunks that both have.
std::vector<size_t> OtherChunks(const FileContent& a, const FileContent& b) {
    std::vector<size_t> chunks;
    for (size_t i = 0; i < std::min(a.sums.size(), b.sums.size()); ++i) {
        const bool known = !IsPartly(a.sums[i]) && !IsPartly(b.sums[i]);
        if (known && a.sums[i] != b.sums[i]) chunks.push_back(i);
    }
    return chunks;
}

bool Agree(const FileContent& a, const FileContent& b) {
    return a.bytes == b.bytes && a.chunk_bytes == b.chunk_bytes && OtherChunks(a, b).empty();
}

// How `odd` differs from `good`.
std::string Difference(const FileContent& odd, const FileContent& good) {
    if (odd.bytes != good.bytes) {
        return fmt::format("{} bytes instead of {}", odd.bytes, good.bytes);
    }
    const std::vector<size_t> chunks = OtherChunks(odd, good);
    if (chunks.empty()) return "the sums are of other ranges";
    const uint64_t begin = chunks.front() * good.chunk_bytes;
    const uint64_t end = std::min(begin + good.chunk_bytes, good.bytes);
    const std::string more = chunks.size() == 1 ? ""
                                                : fmt::format(" and {} more of {} such ranges",
                                                              chunks.size() - 1, good.sums.size());
    return fmt::format("bytes {} to {}{}", begin, end - 1, more);
}

}  // namespace

std::string FileContent::Digest() const {
    return HashOf(fmt::format("{} {} {}", bytes, chunk_bytes, fmt::join(sums, " ")));
}

uint64_t Content::bytes() const {
    uint64_t all = 0;
    for (const FileContent& file : files) all += file.bytes;
    return all;
}

std::string Content::Digest() const {
    std::string text;
    for (const FileContent& file : files) text += file.Digest();
    return files.empty() ? "" : HashOf(text);
}

// cached: the sums of each file that the cache has.
static Result<Content> ReadRest(WeightFiles files, std::vector<std::vector<std::string>> cached,
                                const ReadContentOptions& options) {
    std::vector<Part> missing;
    for (size_t i = 0; i < files.size(); ++i) {
        if (!cached[i].empty()) continue;
        files[i]->sums().TurnOn(true);
        const std::vector<Part> parts = MissingParts(*files[i]);
        if (parts.empty()) WriteCache(*files[i], ContentOf(*files[i]));
        missing.insert(missing.end(), parts.begin(), parts.end());
    }
    Content content;
    WEFT_ASSIGN(content.read_bytes, ReadParts(missing, options));
    for (size_t i = 0; i < files.size(); ++i) {
        FileContent& one = content.files.emplace_back(ContentOf(*files[i]));
        if (!cached[i].empty()) {
            one.sums = std::move(cached[i]);
            continue;
        }
        files[i]->sums().TurnOn(false);
    }
    return content;
}

Result<Content> ReadContent(WeightFiles files, const ReadContentOptions& options) {
    std::vector<std::vector<std::string>> cached(files.size());
    for (size_t i = 0; i < files.size() && !options.anew; ++i) cached[i] = ReadCache(*files[i]);
    return ReadRest(files, std::move(cached), options);
}

Result<std::optional<Content>> KnownContent(WeightFiles files) {
    std::vector<std::vector<std::string>> cached;
    for (const WeightFile* file : files) {
        cached.push_back(ReadCache(*file));
        const bool known = !cached.back().empty() || MissingParts(*file).empty();
        if (!known) return std::optional<Content>();
    }
    WEFT_ASSIGN(Content content, ReadRest(files, std::move(cached), {}));
    return std::optional<Content>(std::move(content));
}

void HashReads(WeightFiles files) {
    for (const WeightFile* file : files) file->sums().TurnOn(ReadCache(*file).empty());
}

// Files of an archive have times of whole seconds, and may have other contents on each host.
std::string CopyId(WeightFiles files, const std::string& machine) {
    std::string text;
    for (const WeightFile* file : files) {
        FileStamp stamp = file->opened();
        const bool shared = stamp.changed_ns % kNsPerS != 0 && !PlaceOf(*file).local;
        if (shared) stamp.device = 0;  // each machine has its own number
        text += fmt::format("{} {}\n", shared ? "" : machine, TextOf(stamp));
    }
    return HashOf(text);
}

std::string IdentityOf(const std::string& fingerprint, const std::string& digest) {
    return digest.empty() ? fingerprint : HashOf(fingerprint + digest);
}

Result<std::string> ReadIdentity(const ModelSource& source) {
    WEFT_ASSIGN(const std::string fingerprint, source.Fingerprint());
    const std::vector<const WeightFile*> files = source.Files();
    if (std::ranges::any_of(files, &WeightFile::is_partial)) return fingerprint;
    WEFT_ASSIGN(const Content content, ReadContent(files, {.threads = AllowedCores().size()}));
    return IdentityOf(fingerprint, content.Digest());
}

Result<std::string> ReadAdaptersIdentity(const ModelSource& source) {
    const std::vector<const WeightFile*> files = source.AdapterFiles();
    WEFT_ASSIGN(const Content content, ReadContent(files, {.threads = AllowedCores().size()}));
    return IdentityOf(FingerprintOfAdapters(source), content.Digest());
}

std::string FileContentToJson(const FileContent& file, size_t most) {
    const size_t each = (file.sums.size() + most - 1) / std::max<size_t>(1, most);
    FileContent sent = file;
    sent.sums.clear();
    sent.chunk_bytes = file.chunk_bytes * std::max<size_t>(1, each);
    for (size_t i = 0; i < file.sums.size(); i += each) {
        const auto some = std::span(file.sums).subspan(i, std::min(each, file.sums.size() - i));
        const std::string joined = fmt::format("{}", fmt::join(some, " "));
        const bool partly = std::ranges::any_of(some, IsPartly);
        const std::string text = each == 1 ? joined : (partly ? kPartly : "") + HashOf(joined);
        sent.sums.push_back(text.substr(0, kShortDigits));
    }
    return EncodeFields(sent, kFileFields);
}

Result<FileContent> FileContentFromJson(const std::string& text) {
    FileContent file;
    WEFT_TRY(DecodeFields("sums of a model file", text, kFileFields, file));
    return file;
}

std::string CompareCopies(std::span<const FileCopy> copies) {
    std::vector<int64_t> friends;  // by copy: the number of copies that agree with it
    for (const FileCopy& copy : copies) {
        friends.push_back(std::ranges::count_if(
            copies, [&](const FileCopy& other) { return Agree(copy.file, other.file); }));
    }
    const auto good = std::ranges::max_element(friends) - friends.begin();
    const FileContent& most = copies[static_cast<size_t>(good)].file;
    const auto odd =
        std::ranges::find_if(copies, [&](const FileCopy& copy) { return !Agree(copy.file, most); });
    if (odd == copies.end()) return "";
    std::vector<std::string> with, without;
    for (const FileCopy& copy : copies) {
        (Agree(copy.file, most) ? with : without).push_back(copy.host);
    }
    const FileCopy& bad = *odd;
    const std::string text =
        fmt::format("{} on {} differs from that on {}: {}", bad.file.path, bad.host,
                    fmt::join(with, ", "), Difference(bad.file, most));
    if (with.size() > 1 && with.size() > without.size()) {
        return fmt::format("{}. {} of {} copies agree: copy the file again to {}", text,
                           with.size(), copies.size(), fmt::join(without, ", "));
    }
    return fmt::format(
        "{}. Compare 'sha256sum' of the file on each host with the publisher's value to find the "
        "bad copy, and copy the file there again",
        text);
}

}  // namespace weft::model_files

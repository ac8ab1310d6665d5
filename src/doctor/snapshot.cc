#include "doctor/snapshot.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/file.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostEntries = 20'000;
constexpr size_t kMostEntryBytes = 4 << 20;
constexpr size_t kMostBytes = 64 << 20;
constexpr size_t kMostTextBytes = 256 << 20;
// Limit for bytes that are unpacked and dropped, because a small archive can expand greatly.
constexpr size_t kMostDropped = 1 << 30;
constexpr size_t kMostName = 1024;
constexpr int kMostDepth = 32;
constexpr const char* kAgain = "; save it again, or copy it again";

// Adds entries to a snapshot under construction and enforces the limits.
class Intake {
  public:
    explicit Intake(std::string name) : name_(std::move(name)) {}

    // Normalizes a path of an archive: "./sys/x", "/sys/x" and "sys/x" are equal.
    Result<std::string> Name(std::string_view path) const {
        if (path.size() > kMostName) return Bad("a name of {} bytes", path.size());
        std::string name;
        for (std::string_view part : Split(path, '/')) {
            if (part.empty() || part == ".") continue;
            if (part == "..") return Bad("the name '{}' climbs out of it", path);
            if (!name.empty()) name += '/';
            name += part;
        }
        for (char c : name) {
            if (static_cast<unsigned char>(c) < 0x20) {
                return Bad("the name '{}' has control characters", name);
            }
        }
        return name;
    }
    Status Add(std::string name, std::string text) {
        if (name.empty()) return {};
        const bool folder = name.ends_with('/');
        if ((folder ? folders_ : files_.size() - folders_) >= kMostEntries) {
            return Bad("more than {} {}", kMostEntries, folder ? "folders" : "files");
        }
        if (text.size() > kMostEntryBytes) return Refuse(name, text.size());
        if (text.size() > kMostBytes - bytes_) return Bad("more than {} bytes", kMostBytes);
        bytes_ += text.size();
        const bool fresh = files_.insert_or_assign(std::move(name), std::move(text)).second;
        folders_ += folder && fresh ? 1 : 0;
        return {};
    }
    // Records the link's target; the file need not exist.
    Status AddLink(std::string name, std::string_view target) {
        WEFT_ASSIGN(const std::string to, Name(target));
        const auto found = files_.find(to);
        if (found != files_.end()) return Add(std::move(name), std::string(found->second));
        return Refuse(name, "a link to a file that is not in the snapshot");
    }
    // Error messages contain names of the archive, so control characters are removed.
    template <typename... Args>
    Error Bad(fmt::format_string<Args...> format, Args&&... args) const {
        return MakeError(ErrorCode::kCorrupt, "{}: not a snapshot: {}", name_,
                         Printable(fmt::format(format, std::forward<Args>(args)...)));
    }
    // Records an oversized file as unreadable; other files are not affected.
    Status Refuse(const std::string& name, size_t bytes) {
        return Refuse(name,
                      fmt::format("too large: {} bytes or more, at most {} are read; keep its "
                                  "end (tail -c 4M)",
                                  bytes, kMostEntryBytes));
    }
    Status Refuse(const std::string& name, const std::string& why) {
        if (++refusals_ > kMostEntries) return Bad("more than {} files", kMostEntries);
        refused_ += fmt::format("{}: {}\n", name, why);
        return {};
    }
    // The input ends early: files that are missing may have existed.
    void EndsHere() { ends_here_ = true; }
    SnapshotFiles Take() {
        if (!refused_.empty()) files_["unread"] += refused_;
        if (ends_here_) files_.erase("probe/complete");
        DropCoveredFolders(files_);
        return std::move(files_);
    }

  private:
    std::string name_, refused_;
    SnapshotFiles files_;
    size_t bytes_ = 0, folders_ = 0, refusals_ = 0;
    bool ends_here_ = false;
};

std::string WhyNot(archive* of) {
    const char* said = archive_error_string(of);
    return said == nullptr ? "it is damaged" : said;
}

// what: with the path and the reason.
Error Unreadable(std::string_view what) {
    return MakeError(ErrorCode::kIo, "{}; make it readable", Printable(what));
}

// Why an entry could not be read: the archive is damaged, or the folder has an unreadable file.
Error ReadFault(const Intake& intake, archive* reader, archive_entry* entry, bool of_folder) {
    if (!of_folder) return intake.Bad("{}{}", WhyNot(reader), kAgain);
    const char* path = entry == nullptr ? nullptr : archive_entry_pathname(entry);
    const int code = archive_errno(reader);
    const bool known = path != nullptr && code > 0;
    return Unreadable(known ? fmt::format("{}: {}", path, std::strerror(code)) : WhyNot(reader));
}

using Reader = std::unique_ptr<archive, int (*)(archive*)>;

// Content and size of an entry; bytes beyond kMostEntryBytes are dropped.
Result<size_t> ReadTarData(const Intake& intake, archive* reader, archive_entry* entry,
                           bool of_folder, std::string& text) {
    size_t size = 0;
    std::array<char, 65536> buffer;
    for (;;) {
        const la_ssize_t got = archive_read_data(reader, buffer.data(), buffer.size());
        if (got < 0) return ReadFault(intake, reader, entry, of_folder);
        if (got == 0) return size;
        size += static_cast<size_t>(got);
        if (size <= kMostEntryBytes) text.append(buffer.data(), static_cast<size_t>(got));
        if (size > kMostDropped) return size;
    }
}

// root: of a folder that is read, else "". dropped: bytes unpacked and dropped so far.
Status AddEntry(Intake& intake, archive* reader, archive_entry* entry, std::string_view root,
                size_t& dropped) {
    // A pax header is UTF-8, which the C locale does not convert.
    const char* path = archive_entry_pathname(entry);
    if (path == nullptr) path = archive_entry_pathname_utf8(entry);
    if (path == nullptr) return intake.Bad("a name that is not text");
    WEFT_ASSIGN(std::string name, intake.Name(std::string_view(path).substr(root.size())));
    const char* target = archive_entry_symlink(entry);
    if (target != nullptr) return intake.Add(std::move(name), target);
    const char* same = archive_entry_hardlink(entry);
    if (same != nullptr) return intake.AddLink(std::move(name), same);
    const auto type = archive_entry_filetype(entry);
    if (type == AE_IFDIR) return name.empty() ? Status() : intake.Add(name + "/", "");
    if (type != AE_IFREG) return intake.Add(std::move(name), "");
    // The reader skips a plain file's data without reading it. Holes of a sparse file are not read.
    const auto told = static_cast<size_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
    const bool plain = !root.empty() || archive_filter_code(reader, 0) == ARCHIVE_FILTER_NONE;
    if (plain && told > kMostEntryBytes) return intake.Refuse(name, told);
    std::string text;
    WEFT_ASSIGN(const size_t size, ReadTarData(intake, reader, entry, !root.empty(), text));
    if (std::max(size, told) <= kMostEntryBytes) return intake.Add(std::move(name), text);
    dropped += size;
    return intake.Refuse(name, std::max(size, told));
}

Reader TarReader() {
    Reader reader(archive_read_new(), archive_read_free);
    archive_read_support_format_tar(reader.get());
    archive_read_support_filter_gzip(reader.get());
    archive_read_support_filter_xz(reader.get());
    archive_read_support_filter_bzip2(reader.get());
    archive_read_support_filter_zstd(reader.get());
    return reader;
}

Reader FolderReader() {
    Reader reader(archive_read_disk_new(), archive_read_free);
    archive_read_disk_set_symlink_hybrid(reader.get());  // follows the folder's own link only
    archive_read_disk_set_behavior(reader.get(), ARCHIVE_READDISK_NO_XATTR |
                                                     ARCHIVE_READDISK_NO_ACL |
                                                     ARCHIVE_READDISK_NO_FFLAGS);
    return reader;
}

// opened: result of opening the reader, of an archive or the folder `root`.
Result<SnapshotFiles> TakeAll(archive* reader, int opened, const std::string& name,
                              std::string_view root = "") {
    Intake intake(name);
    if (opened != ARCHIVE_OK) return intake.Bad("{}", WhyNot(reader));
    size_t entries = 0, dropped = 0;
    while (dropped <= kMostDropped) {
        archive_entry* entry = nullptr;
        const int got = archive_read_next_header(reader, &entry);
        if (got == ARCHIVE_EOF) return intake.Take();
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            return ReadFault(intake, reader, entry, !root.empty());
        }
        if (++entries > 2 * kMostEntries) return intake.Bad("more than {} files", kMostEntries);
        WEFT_TRY(AddEntry(intake, reader, entry, root, dropped));
        if (!root.empty() && archive_read_disk_can_descend(reader) != 0) {
            if (std::ranges::count(std::string_view(archive_entry_pathname(entry)), '/') >
                std::ranges::count(root, '/') + kMostDepth) {
                return intake.Bad("folders {} deep", kMostDepth);
            }
            archive_read_disk_descend(reader);
        }
    }
    intake.EndsHere();
    return intake.Take();
}

bool IsText(char first) {
    constexpr std::string_view kFirst = "=# \t\r\n\xef";  // or a byte order mark
    return kFirst.find(first) != std::string_view::npos;
}

}  // namespace

Result<SnapshotFiles> ParseTar(std::span<const std::byte> bytes, const std::string& name) {
    const Reader reader = TarReader();
    const int opened = archive_read_open_memory(reader.get(), bytes.data(), bytes.size());
    return TakeAll(reader.get(), opened, name);
}

Result<SnapshotFiles> ParseTextSnapshot(std::string_view text, const std::string& name) {
    constexpr std::string_view kOpen = "==> ", kClose = " <==", kMark = "\xef\xbb\xbf";
    if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
    Intake intake(name);
    std::string path, content;
    bool inside = false;
    size_t size = 0;  // size of the content, of which at most an entry's limit is kept
    const auto finish = [&]() -> Status {
        if (!inside) return {};
        if (size > kMostEntryBytes) {
            content.clear();
            return intake.Refuse(path, std::exchange(size, 0));
        }
        size = 0;
        if (path.ends_with('/')) content.clear();
        if (content.ends_with("\n\n")) content.pop_back();  // tail's blank line between files
        return intake.Add(std::move(path), std::exchange(content, {}));
    };
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.starts_with(kOpen) && line.ends_with(kClose) &&
            line.size() > kOpen.size() + kClose.size()) {
            WEFT_TRY(finish());
            line.remove_prefix(kOpen.size());
            line.remove_suffix(kClose.size());
            WEFT_ASSIGN(path, intake.Name(line));
            if (line.ends_with('/')) path += '/';
            inside = true;
        } else if (inside) {
            size += line.size() + 1;
            if (size > kMostEntryBytes) continue;
            content += line;
            content += '\n';
        } else if (!Trim(line).empty() && !line.starts_with('#')) {
            return intake.Bad("'==> PATH <==' was expected as its first line");
        }
    }
    WEFT_TRY(finish());
    if (!inside) return intake.Bad("no '==> PATH <==' line in it");
    return intake.Take();
}

Result<SnapshotFiles> ParseSnapshot(std::string_view bytes, const std::string& name) {
    if (!bytes.empty() && IsText(bytes.front())) return ParseTextSnapshot(bytes, name);
    return ParseTar(std::as_bytes(std::span(bytes)), name);
}

Result<SnapshotFiles> ReadSnapshotFiles(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
        return MakeError(ErrorCode::kNotFound,
                         "{}: {}. --from takes a folder or a file that "
                         "'weft doctor --save FILE' made",
                         path, std::strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        std::string root = path;
        while (root.size() > 1 && root.ends_with('/')) root.pop_back();
        const Reader reader = FolderReader();
        const int opened = archive_read_disk_open(reader.get(), root.c_str());
        return TakeAll(reader.get(), opened, path, root);
    }
    const bool file = S_ISREG(info.st_mode);
    std::ifstream begin;
    if (file) begin.open(path, std::ios::binary);
    if (!begin) return Unreadable(fmt::format("{}: {}", path, std::strerror(errno)));
    if (!file || IsText(static_cast<char>(begin.peek()))) {
        WEFT_ASSIGN(const std::string bytes, ReadTextFile(path, kMostTextBytes));
        return ParseSnapshot(bytes, path);
    }
    const Reader reader = TarReader();
    const int opened = archive_read_open_filename(reader.get(), path.c_str(), 65536);
    return TakeAll(reader.get(), opened, path);
}

Result<std::string> WriteTar(const SnapshotFiles& files) {
    std::string bytes;
    const std::unique_ptr<archive, int (*)(archive*)> writer(archive_write_new(),
                                                             archive_write_free);
    archive_write_set_format_pax_restricted(writer.get());
    archive_write_add_filter_none(writer.get());
    const auto append = [](archive*, void* to, const void* from, size_t size) -> la_ssize_t {
        static_cast<std::string*>(to)->append(static_cast<const char*>(from), size);
        return static_cast<la_ssize_t>(size);
    };
    bool good = archive_write_open(writer.get(), &bytes, nullptr, append, nullptr) == ARCHIVE_OK;
    for (const auto& [name, text] : files) {
        const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                             archive_entry_free);
        const bool folder = name.ends_with('/');
        archive_entry_set_pathname(entry.get(), name.c_str());
        archive_entry_set_filetype(entry.get(), folder ? AE_IFDIR : AE_IFREG);
        archive_entry_set_perm(entry.get(), folder ? 0755 : 0644);
        archive_entry_set_mtime(entry.get(), 0, 0);
        archive_entry_set_size(entry.get(), static_cast<la_int64_t>(text.size()));
        // A warning means that the name is not in the locale's charset; it is written unchanged.
        good = good && archive_write_header(writer.get(), entry.get()) >= ARCHIVE_WARN;
        if (good && !text.empty()) {
            good = archive_write_data(writer.get(), text.data(), text.size()) ==
                   static_cast<la_ssize_t>(text.size());
        }
    }
    if (!good || archive_write_close(writer.get()) != ARCHIVE_OK) {
        return MakeError(ErrorCode::kIo, "cannot write the snapshot: {}", WhyNot(writer.get()));
    }
    return bytes;
}

}  // namespace weft::doctor

#include "doctor/snapshot.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostEntries = 20'000;
constexpr size_t kMostEntryBytes = 4 << 20;
constexpr size_t kMostBytes = 64 << 20;
constexpr size_t kMostDropped = 1 << 30;
constexpr size_t kMostName = 1024;
constexpr int kMostDepth = 32;

// Adds entries to a snapshot under construction and holds the limits.
class Intake {
  public:
    explicit Intake(std::string name) : name_(std::move(name)) {}

    // `path` as an archive has it: "./sys/x", "/sys/x" and "sys/x" are the same.
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
            if (static_cast<unsigned char>(c) < 0x20) return Bad("a name with control characters");
        }
        return name;
    }
    Status Add(std::string name, std::string text) {
        if (name.empty()) return {};
        if (files_.size() >= kMostEntries) return Bad("more than {} files", kMostEntries);
        if (text.size() > kMostEntryBytes) return Refuse(name, text.size());
        if (text.size() > kMostBytes - bytes_) return Bad("more than {} bytes", kMostBytes);
        bytes_ += text.size();
        files_[std::move(name)] = std::move(text);
        return {};
    }
    template <typename... Args>
    Error Bad(fmt::format_string<Args...> format, Args&&... args) const {
        return MakeError(ErrorCode::kCorrupt, "{}: not a snapshot: {}", name_,
                         fmt::format(format, std::forward<Args>(args)...));
    }
    // A file that is too large is one that could not be read; the others are not concerned.
    Status Refuse(const std::string& name, size_t bytes) {
        refused_ += fmt::format("{}: too large: {} bytes or more, at most {} are read\n", name,
                                bytes, kMostEntryBytes);
        // What is read only to be dropped is bounded, too: a small archive can hold very much.
        dropped_ += bytes;
        if (refused_.size() > kMostEntryBytes || dropped_ > kMostDropped) {
            return Bad("more than {} bytes", kMostDropped);
        }
        return {};
    }
    SnapshotFiles Take() {
        if (!refused_.empty()) files_["unread"] += refused_;
        return std::move(files_);
    }

  private:
    std::string name_, refused_;
    SnapshotFiles files_;
    size_t bytes_ = 0, dropped_ = 0;
};

Result<std::string> ReadFolderEntry(const std::string& path, const struct stat& info) {
    if (S_ISLNK(info.st_mode)) {
        std::array<char, kMostName> target;
        const ssize_t got = ::readlink(path.c_str(), target.data(), target.size());
        return std::string(target.data(), got < 0 ? 0 : static_cast<size_t>(got));
    }
    if (!S_ISREG(info.st_mode)) return std::string();  // a device: that it is there, says enough
    return ReadTextFile(path, kMostEntryBytes);
}

Status AddFolder(Intake& intake, const std::string& root, const std::string& inside, int depth) {
    if (depth > kMostDepth) return intake.Bad("folders {} deep", depth);
    const std::string folder = inside.empty() ? root : root + "/" + inside;
    DIR* opened = ::opendir(folder.c_str());
    if (opened == nullptr) {
        return MakeError(ErrorCode::kIo, "{}: cannot list: {}", folder, std::strerror(errno));
    }
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(opened)) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
        if (names.size() > kMostEntries) break;
    }
    ::closedir(opened);
    if (names.empty()) return intake.Add(inside + "/", "");
    for (const std::string& entry : names) {
        WEFT_ASSIGN(const std::string name, intake.Name(inside + "/" + entry));
        const std::string path = root + "/" + name;
        struct stat info {};
        if (::lstat(path.c_str(), &info) != 0) continue;  // gone meanwhile
        if (S_ISDIR(info.st_mode)) {
            WEFT_TRY(AddFolder(intake, root, name, depth + 1));
        } else {
            if (S_ISREG(info.st_mode) && info.st_size > static_cast<off_t>(kMostEntryBytes)) {
                WEFT_TRY(intake.Refuse(name, kMostEntryBytes));  // not read at all
                continue;
            }
            WEFT_ASSIGN(std::string text, ReadFolderEntry(path, info));
            WEFT_TRY(intake.Add(name, std::move(text)));
        }
    }
    return {};
}

std::string WhyNot(archive* of) {
    const char* said = archive_error_string(of);
    return said == nullptr ? "it is damaged" : said;
}

using Reader = std::unique_ptr<archive, int (*)(archive*)>;

Status AddTarEntry(Intake& intake, archive* reader, archive_entry* entry) {
    const char* path = archive_entry_pathname(entry);
    if (path == nullptr) return intake.Bad("a name that is not text");
    WEFT_ASSIGN(std::string name, intake.Name(path));
    const char* target = archive_entry_symlink(entry);
    if (target != nullptr) return intake.Add(std::move(name), target);
    if (archive_entry_hardlink(entry) != nullptr) return intake.Bad("{} is a hard link", name);
    const auto type = archive_entry_filetype(entry);
    if (type == AE_IFDIR) return name.empty() ? Status() : intake.Add(name + "/", "");
    if (type != AE_IFREG) return intake.Add(std::move(name), "");
    std::string text;
    size_t size = 0;
    std::array<char, 65536> buffer;
    for (;;) {
        const la_ssize_t got = archive_read_data(reader, buffer.data(), buffer.size());
        if (got < 0) return intake.Bad("{}: {}", name, WhyNot(reader));
        if (got == 0) break;
        size += static_cast<size_t>(got);
        if (size <= kMostEntryBytes) text.append(buffer.data(), static_cast<size_t>(got));
        if (size > kMostDropped) break;
    }
    if (size > kMostEntryBytes) return intake.Refuse(name, size);
    return intake.Add(std::move(name), std::move(text));
}

}  // namespace

Result<SnapshotFiles> ParseTar(std::span<const std::byte> bytes, const std::string& name) {
    Intake intake(name);
    const Reader reader(archive_read_new(), archive_read_free);
    archive_read_support_format_tar(reader.get());
    archive_read_support_filter_gzip(reader.get());
    archive_read_support_filter_xz(reader.get());
    archive_read_support_filter_bzip2(reader.get());
    archive_read_support_filter_zstd(reader.get());
    if (archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) {
        return intake.Bad("{}", WhyNot(reader.get()));
    }
    size_t entries = 0;
    for (;;) {
        archive_entry* entry = nullptr;
        const int got = archive_read_next_header(reader.get(), &entry);
        if (got == ARCHIVE_EOF) break;
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            return intake.Bad("{}", WhyNot(reader.get()));
        }
        if (++entries > 2 * kMostEntries) return intake.Bad("more than {} files", kMostEntries);
        WEFT_TRY(AddTarEntry(intake, reader.get(), entry));
    }
    return intake.Take();
}

Result<SnapshotFiles> ParseTextSnapshot(std::string_view text, const std::string& name) {
    constexpr std::string_view kOpen = "==> ", kClose = " <==";
    Intake intake(name);
    std::string path, content;
    bool inside = false;
    const auto finish = [&]() -> Status {
        if (!inside) return {};
        if (path.ends_with('/')) content.clear();
        if (content.ends_with("\n\n")) content.pop_back();  // tail's blank line between files
        return intake.Add(std::move(path), std::exchange(content, {}));
    };
    for (std::string_view line : Lines(text)) {
        if (line.starts_with(kOpen) && line.ends_with(kClose) &&
            line.size() > kOpen.size() + kClose.size()) {
            WEFT_TRY(finish());
            line.remove_prefix(kOpen.size());
            line.remove_suffix(kClose.size());
            WEFT_ASSIGN(path, intake.Name(line));
            if (line.ends_with('/')) path += '/';
            inside = true;
        } else if (inside) {
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
    const char first = bytes.empty() ? '\0' : bytes.front();
    if (first == '=' || first == '#') return ParseTextSnapshot(bytes, name);
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
        Intake intake(path);
        WEFT_TRY(AddFolder(intake, path, "", 0));
        return intake.Take();
    }
    WEFT_ASSIGN(const std::string bytes, ReadTextFile(path, 4 * kMostBytes));
    return ParseSnapshot(bytes, path);
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
        good = good && archive_write_header(writer.get(), entry.get()) == ARCHIVE_OK;
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

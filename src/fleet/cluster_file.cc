#include "fleet/cluster_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/file.h"
#include "base/home_folder.h"
#include "base/output_file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cluster/socket.h"

#ifdef WEFT_HAS_TOML
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 16
#include <toml++/toml.h>
#endif

namespace weft::fleet {
namespace {

constexpr size_t kMostClusterFile = 1 << 16;
constexpr size_t kMostFileHosts = 256;
constexpr size_t kMostValue = 200;
constexpr off_t kLeastKey = 16;  // bytes; a shorter file is not a key (cluster/join/handshake.h)

// Checks names of hosts and clusters, which become command-line words and file names.
bool IsPlainWord(std::string_view text, std::string_view more) {
    const auto good = [&](char letter) {
        return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
               (letter >= '0' && letter <= '9') || more.find(letter) != more.npos;
    };
    return !text.empty() && text.size() <= 64 && text[0] != '-' && text[0] != '.' &&
           std::ranges::all_of(text, good);
}

#ifdef WEFT_HAS_TOML
Status CheckHost(const ClusterHost& host, const std::vector<ClusterHost>& others,
                 const std::string& where) {
    if (!IsPlainWord(host.name, "._-")) {
        return MakeError(ErrorCode::kUsage,
                         "{}: a host's name has only letters, digits and '._-'; found '{}'", where,
                         host.name);
    }
    if (std::ranges::find(others, host.name, &ClusterHost::name) != others.end()) {
        return MakeError(ErrorCode::kUsage, "{}: the host {} is listed twice", where, host.name);
    }
    if (!host.ssh.empty() && !IsPlainWord(host.ssh, "._-@:[]%")) {
        return MakeError(ErrorCode::kUsage, "{}: ssh = '{}': expected HOST or USER@HOST", where,
                         host.ssh);
    }
    if (host.address.empty()) return {};
    const auto address = cluster::ParseAddress(cluster::WithWorkerPort(host.address));
    if (address.ok()) return {};
    return MakeError(ErrorCode::kUsage, "{}: {}", where, address.error().message);
}

std::string At(const std::string& path, const toml::node& node) {
    return fmt::format("{}:{}", path, node.source().begin.line);
}

// The strings of a table, by key.
struct Field {
    std::string_view name;
    std::string* value;
};
Status ReadFields(const toml::table& table, std::initializer_list<Field> fields,
                  const std::string& path, const char* expected) {
    for (const auto& [key, node] : table) {
        const auto field = std::ranges::find(fields, key.str(), &Field::name);
        const std::string where =
            fmt::format("{}:{}", path, std::max(key.source().begin.line, node.source().begin.line));
        if (field == fields.end()) {
            return MakeError(ErrorCode::kUsage, "{}: '{}' is not known here; expected {}", where,
                             key.str(), expected);
        }
        if (field->value == nullptr) continue;
        const auto* text = node.as_string();
        const bool good = text != nullptr && text->get().size() <= kMostValue &&
                          std::ranges::none_of(text->get(), [](char letter) {
                              return (letter >= 0 && letter < ' ') || letter == 127;
                          });
        if (!good) {
            return MakeError(ErrorCode::kUsage,
                             "{}: {} = \"...\": expected a string of at most {} letters", where,
                             key.str(), kMostValue);
        }
        *field->value = text->get();
    }
    return {};
}

Status ReadHosts(const toml::node& node, const std::string& path, ClusterFile& file) {
    const toml::array* hosts = node.as_array();
    if (hosts == nullptr || hosts->size() > kMostFileHosts) {
        return MakeError(ErrorCode::kUsage, "{}: expected [[host]] tables, at most {}",
                         At(path, node), kMostFileHosts);
    }
    for (const toml::node& each : *hosts) {
        const toml::table* table = each.as_table();
        if (table == nullptr) {
            return MakeError(ErrorCode::kUsage, "{}: expected [[host]] tables", At(path, each));
        }
        ClusterHost host;
        WEFT_TRY(ReadFields(*table,
                            {{"name", &host.name}, {"address", &host.address}, {"ssh", &host.ssh}},
                            path, "name, address and ssh"));
        WEFT_TRY(CheckHost(host, file.hosts, At(path, each)));
        file.hosts.push_back(std::move(host));
    }
    return {};
}
#endif

std::string Quoted(std::string_view text) {
    std::string quoted = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') quoted += '\\';
        quoted += letter;
    }
    return quoted + "\"";
}

#ifdef WEFT_HAS_TOML
// Writes non-ASCII characters of a line as TOML escapes, which are equivalent within "..."; drops a
// comment; nullopt: an escape would not be equivalent. (toml++ 3.0 treats some such characters
// outside of strings as unreachable code.)
std::optional<std::string> AsciiLine(std::string_view line) {
    const size_t first = line.find_first_not_of(" \t");
    if (first != line.npos && line[first] == '#') return "";
    if (line.find('\'') != line.npos || !IsUtf8(line)) return std::nullopt;
    std::string ascii;
    for (size_t at = 0; at < line.size();) {
        const size_t length = CodePointLength(line, at);
        if (length == 1) {
            ascii += line[at];
        } else {
            ascii += fmt::format("\\U{:08X}", uint32_t{CodePointOf(line.substr(at, length))});
        }
        at += length;
    }
    return ascii;
}

Result<std::string> InAscii(std::string_view text, const std::string& path) {
    std::string ascii;
    for (int number = 1; !text.empty(); ++number) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        std::optional<std::string> escaped;
        if (std::ranges::any_of(line, [](char c) { return (c & 0x80) != 0; })) {
            escaped = AsciiLine(line);
            if (!escaped) {
                return MakeError(ErrorCode::kUsage,
                                 "{}:{}: a character that is not ASCII; expected it in \"...\", as "
                                 "UTF-8, in a line without '",
                                 path, number);
            }
            line = *escaped;
        }
        ascii.append(line) += '\n';
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return ascii;
}
#endif

// A key from systemd for this service (LoadCredential=NAME.key:...); "": none, or a placeholder.
std::string CredentialOf(const std::string& cluster) {
    const char* folder = std::getenv("CREDENTIALS_DIRECTORY");
    if (folder == nullptr || folder[0] != '/') return "";
    std::string path = fmt::format("{}/{}.key", folder, cluster);
    struct stat about {};
    return ::stat(path.c_str(), &about) == 0 && about.st_size >= kLeastKey ? path : "";
}

}  // namespace

Result<ClusterPaths> PathsOf(const std::string& cluster) {
    if (!IsPlainWord(cluster, "._-")) {
        return MakeError(
            ErrorCode::kUsage,
            "--cluster '{}': expected a name of letters, digits and '._-', such as home", cluster);
    }
    const char* config = std::getenv("XDG_CONFIG_HOME");
    const std::string home = HomeFolder();
    std::string folder;
    if (config != nullptr && config[0] == '/') {
        folder = config;
    } else if (!home.empty()) {
        folder = home + "/.config";
    } else {
        return MakeError(ErrorCode::kNotFound,
                         "neither XDG_CONFIG_HOME nor HOME is set: no place for the files of "
                         "cluster '{}'",
                         cluster);
    }
    folder += "/weft/clusters";
    return ClusterPaths{folder, folder + "/" + cluster + ".toml", folder + "/" + cluster + ".key"};
}

Result<ClusterFile> ParseClusterFile(std::string_view text, const std::string& path) {
    if (text.size() > kMostClusterFile) {
        return MakeError(ErrorCode::kUsage, "{}: {} bytes; at most {} are expected", path,
                         text.size(), kMostClusterFile);
    }
#ifdef WEFT_HAS_TOML
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    WEFT_ASSIGN(const std::string ascii, InAscii(text, path));
    const toml::parse_result parsed = toml::parse(ascii, path);
    if (parsed.failed()) {
        return MakeError(ErrorCode::kUsage, "{}:{}: {}", path, parsed.error().source().begin.line,
                         parsed.error().description());
    }
    ClusterFile file;
    const toml::table& table = parsed.table();
    WEFT_TRY(ReadFields(table, {{"key", &file.key}, {"host", nullptr}}, path, "key and [[host]]"));
    if (const toml::node* hosts = table.get("host")) WEFT_TRY(ReadHosts(*hosts, path, file));
    return file;
#else
    return MakeError(ErrorCode::kUnsupported,
                     "{}: this weft was built without toml++ (libtomlplusplus-dev), which reads "
                     "it. Name hosts with --hosts",
                     path);
#endif
}

std::string ClusterFileText(const ClusterFile& file) {
    std::string text;
    if (!file.key.empty()) text += fmt::format("key = {}\n", Quoted(file.key));
    for (const ClusterHost& host : file.hosts) {
        text += fmt::format("{}[[host]]\nname = {}\n", text.empty() ? "" : "\n", Quoted(host.name));
        if (!host.address.empty()) text += fmt::format("address = {}\n", Quoted(host.address));
        if (!host.ssh.empty()) text += fmt::format("ssh = {}\n", Quoted(host.ssh));
    }
    return text;
}

Result<ClusterFile> ReadClusterFile(const std::string& cluster) {
    WEFT_ASSIGN(const ClusterPaths paths, PathsOf(cluster));
    ClusterFile file;
    struct stat about {};
    if (::stat(paths.file.c_str(), &about) == 0 || errno != ENOENT) {
        WEFT_ASSIGN(const std::string text, ReadTextFile(paths.file, kMostClusterFile));
        WEFT_ASSIGN(file, ParseClusterFile(text, paths.file));
    }
    if (file.key.empty()) {
        const std::string credential = CredentialOf(cluster);
        file.key = credential.empty() ? paths.key : credential;
    } else if (file.key[0] != '/') {
        file.key = paths.folder + "/" + file.key;
    }
    return file;
}

// The present text of the file with the last hosts of `file` behind it. "": the file differs in
// more than these hosts.
static std::string WithMoreHosts(const std::string& cluster, const std::string& path,
                                 const ClusterFile& file) {
    const auto old = ReadClusterFile(cluster);
    auto text = ReadTextFile(path, kMostClusterFile);
    if (!old.ok() || !text.ok() || old->key != file.key) return "";
    const size_t known = old->hosts.size();
    if (known > file.hosts.size() ||
        !std::equal(old->hosts.begin(), old->hosts.end(), file.hosts.begin())) {
        return "";
    }
    ClusterFile more;
    more.hosts.assign(file.hosts.begin() + static_cast<ptrdiff_t>(known), file.hosts.end());
    if (!text->empty() && !text->ends_with('\n')) *text += '\n';
    *text += (text->empty() || more.hosts.empty() ? "" : "\n") + ClusterFileText(more);
    // (A list that is no [[host]] tables cannot grow so.)
    const auto whole = ParseClusterFile(*text, path);
    return whole.ok() && whole->hosts == file.hosts ? *text : "";
}

Status WriteClusterFile(const std::string& cluster, const ClusterFile& file) {
    WEFT_ASSIGN(const ClusterPaths paths, PathsOf(cluster));
    ClusterFile shown = file;
    if (shown.key == paths.key) shown.key.clear();
    const std::string grown = WithMoreHosts(cluster, paths.file, file);
    return ReplaceFile(paths.file, grown.empty() ? ClusterFileText(shown) : grown, 0644, true);
}

Result<FileLock> LockClusterFile(const std::string& cluster) {
    WEFT_ASSIGN(const ClusterPaths paths, PathsOf(cluster));
    return FileLock::Take(paths.file);
}

Result<bool> MakeKey(const std::string& path, const std::string& key) {
    WEFT_ASSIGN(const FileLock lock, FileLock::Take(path));
    struct stat about {};
    if (::stat(path.c_str(), &about) == 0) return false;
    WEFT_TRY(ReplaceFile(path, key + "\n", 0600, true));
    return true;
}

}  // namespace weft::fleet

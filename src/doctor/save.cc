#include "doctor/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/json.h"
#include "doctor/kernel_log.h"
#include "doctor/saved_sources.h"
#include "doctor/saved_words.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

using SavedJson = nlohmann::ordered_json;

constexpr size_t kMostSavedLines = 20'000;
// Saved content of a kernel log in which no line is one that a check reads.
constexpr const char* kNoKnownLine = "[no line that a check reads]\n";

// ---- Texts ------------------------------------------------------------------------------------

// The key at the start of the line or in it; nullopt: the line is not kept.
std::optional<std::string_view> KeyOf(std::string_view line, std::string_view keys) {
    if (keys.empty()) return std::string_view();
    const std::string_view first = line.substr(0, line.find(' '));
    const bool address = IsPciAddress(first) || IsPciAddress(fmt::format("0000:{}", first));
    for (std::string_view key : Split(keys, '|')) {
        if (key == "@" && address) return std::string_view();
        if (key.starts_with('*') ? Contains(line, key.substr(1)) : line.starts_with(key)) {
            return key.starts_with('*') ? std::string_view() : key;
        }
    }
    return std::nullopt;
}

// A board's label of a memory slot: "Controller1-ChannelA-DIMM0", "P0 CHANNEL B".
bool IsSlotLabel(std::string_view text) {
    constexpr std::string_view kParts =
        " DIMM Controller Channel CHANNEL ChannelA ChannelB ChannelC ChannelD BANK Bank Node P A B "
        "C D E F G H ";
    for (std::string_view word : Words(text)) {
        for (std::string_view both : Split(word, '-')) {
            for (std::string_view part : Split(both, '_')) {
                const size_t digits = part.find_last_not_of("0123456789") + 1;
                const std::string_view name = part.substr(0, digits);
                if (!name.empty() && !IsOneOf(name, kParts)) return false;
                if (part.size() - digits > 2) return false;
            }
        }
    }
    return true;
}

// "usb-0000:00:14.0-1.1": the controller and the ports of a USB device.
bool IsUsbPlace(std::string_view text) {
    constexpr size_t kAddress = 12;
    if (!text.starts_with("usb-") || text.size() > 32) return false;
    text.remove_prefix(4);
    return IsPciAddress(text.substr(0, kAddress)) && text.size() > kAddress + 1 &&
           text[kAddress] == '-' &&
           text.substr(kAddress + 1).find_first_not_of("0123456789.") == text.npos;
}

// One kept line, without leading blanks.
std::string SavedLine(const SavedRow& row, std::string_view key, std::string_view line,
                      Pseudonyms& names) {
    if (row.form == SavedForm::kVersion) {
        const std::string version = SavedVersion(line.substr(key.size()), names);
        return version.empty() ? "" : std::string(key) + version;
    }
    const bool whole = row.form == SavedForm::kFields || row.form == SavedForm::kValue;
    const bool numbers = line.find_first_not_of("0123456789 \t-.") == line.npos;
    if (row.form == SavedForm::kValue && numbers && line.size() <= 128) return std::string(line);
    if (whole && names.real()) return Printable(line);
    const std::string_view rest = line.substr(key.size());
    const bool renames = row.form == SavedForm::kTable || row.form == SavedForm::kRules;
    std::string kept = SavedWords(rest, renames ? UnknownWord::kRename : UnknownWord::kDrop, names);
    if (renames) return std::string(key) + kept;
    const bool lost = Trim(kept).empty() && !Trim(rest).empty();
    const bool field = row.form == SavedForm::kFields || key.starts_with("Kernel driver");
    if (lost && field) kept = key.ends_with('=') ? "other" : " other";
    if (key.ends_with("Locator:") && IsSlotLabel(rest)) kept = std::string(rest);
    if (key == "bus-info:" && IsUsbPlace(Trim(rest))) kept = std::string(rest);
    return key.empty() && Trim(kept).empty() ? "" : std::string(key) + kept;
}

// A firewall's rule without its comment and without strings that it compares or logs.
std::string WithoutStrings(std::string_view rule) {
    rule = rule.substr(0, std::min(rule.find("/*"), rule.find(" #")));
    std::string kept(rule.starts_with('#') ? std::string_view() : rule);
    for (std::string_view word :
         {"--comment ", "--string ", "--log-prefix ", "comment ", "prefix ", "prefix="}) {
        for (size_t at = kept.find(word); at != kept.npos; at = kept.find(word, at)) {
            size_t end = at + word.size();
            const char quote = end < kept.size() ? kept[end] : ' ';
            const bool quoted = quote == '"' || quote == '\'';
            if (quoted) ++end;
            while (end < kept.size() && kept[end] != (quoted ? quote : ' ')) {
                end += kept[end] == '\\' ? 2 : 1;
            }
            kept.erase(at, end + (quoted ? 1 : 0) - at);
        }
    }
    return kept;
}

std::string SavedLines(const SavedRow& row, std::string_view text, Pseudonyms& names) {
    std::string kept;
    size_t count = 0;
    for (std::string_view line : Lines(text)) {
        const std::string rule = row.form == SavedForm::kRules ? WithoutStrings(line) : "";
        if (row.form == SavedForm::kRules) line = rule;
        // A comment in a configuration file.
        if (row.path.starts_with("etc/")) line = line.substr(0, line.find('#'));
        const std::string_view bare = Trim(line);
        const auto key = KeyOf(bare, row.keys);
        if (bare.empty() || !key || count++ == kMostSavedLines) continue;
        const std::string shown = SavedLine(row, *key, bare, names);
        const size_t indent = row.form == SavedForm::kVersion ? 0 : line.find(bare);
        if (!shown.empty()) kept += std::string(line.substr(0, indent)) + shown + "\n";
        if (row.form == SavedForm::kValue) break;
    }
    return kept;
}

std::string SavedParameters(std::string_view text, std::string_view keys, Pseudonyms& names) {
    const auto known = Split(keys, '|');
    std::string kept;
    for (std::string_view word : Words(text.substr(0, 65536))) {
        const std::string_view key = word.substr(0, word.find('='));
        if (std::ranges::find(known, key) == known.end()) continue;
        std::string shown = SavedWords(word, UnknownWord::kDrop, names);
        // A boot loader that passes the initramfs to the kernel keeps the parameters in a separate
        // file.
        if (key == "initrd") shown = word.starts_with("initrd=\\") ? "initrd=\\" : "";
        if (!shown.empty()) kept += (kept.empty() ? "" : " ") + shown;
    }
    return kept + "\n";
}

std::string SavedGrub(const SavedRow& row, std::string_view text, Pseudonyms& names) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const std::string_view key = Trim(line.substr(0, line.find('=')));
        const std::string value = WithoutQuotes(After(line, "="));
        if (key == "GRUB_DEFAULT") {
            kept += fmt::format("{}=\"{}\"\n", key, SavedVersion(value, names));
        } else if (IsOneOf(key, "GRUB_CMDLINE_LINUX GRUB_CMDLINE_LINUX_DEFAULT")) {
            const std::string shown = SavedParameters(value, row.keys, names);
            kept += fmt::format("{}=\"{}\"\n", key, Trim(shown));
        }
    }
    return kept;
}

// "../../../devices/0000:00:01.1/0000:01:00.0"; an unknown last part becomes "other".
std::string SavedPath(std::string_view text, Pseudonyms& names) {
    const auto parts = Split(Trim(text.substr(0, 1024)), '/');
    std::string kept;
    for (size_t i = 0; i < parts.size(); ++i) {
        std::string shown = SavedWords(parts[i], UnknownWord::kDrop, names);
        if (Integer(shown)) shown = "";
        if (i + 1 == parts.size() && names.real()) shown = Printable(parts[i]);
        if (i + 1 == parts.size() && shown.empty()) shown = "other";
        if (!shown.empty()) kept += (kept.empty() ? "" : "/") + shown;
    }
    return kept + "\n";
}

std::string SavedDevice(std::string_view text, Pseudonyms& names) {
    text = Trim(text);
    const size_t slash = text.rfind('/');
    const std::string_view name = text.substr(slash + 1);
    if (name.empty() || name.size() > 64) return "";
    return (slash == text.npos ? "" : "../") + names.Interface(name) + "\n";
}

std::string SavedGid(std::string_view text, const Pseudonyms& names) {
    text = Trim(text);
    if (names.real()) return Printable(text.substr(0, 64)) + "\n";
    const auto address = ParseMappedIpv4(text);
    if (!address) {
        const bool zero = text.find_first_not_of("0:") == text.npos;
        return zero ? "" : "fe80:0000:0000:0000:0000:0000:0000:0001\n";
    }
    const uint32_t shown = names.Address(*address).bits;
    return fmt::format("{}{:04x}:{:04x}\n", kMappedIpv4, shown >> 16, shown & 0xffff);
}

// The path of a control group: "/user.slice/group".
std::string GroupPath(std::string_view path) {
    constexpr std::string_view kUsual =
        " system.slice user.slice machine.slice init.scope weft.slice docker kubepods.slice "
        "kubepods weft.service session.slice lxc ns memory cpu unified ";  // (version 1's folders)
    std::string kept;
    for (std::string_view part : Split(path, '/')) {
        if (part.empty()) continue;
        kept += fmt::format("/{}", IsOneOf(part, kUsual) ? part : "group");
    }
    return kept;
}

// The groups whose limits are checked.
std::string SavedGroup(std::string_view text) {
    std::string kept;
    for (std::string_view line : Lines(text)) {  // "4:memory:/path"; version 2: "0::/path"
        const auto parts = Split(line, ':');
        if (parts.size() < 3 || !Number(parts[0])) continue;
        const std::string_view controllers = parts[1];
        if (!controllers.empty() && !IsOneOf(controllers, "memory cpu cpu,cpuacct cpuacct,cpu")) {
            continue;
        }
        const size_t at = parts[0].size() + controllers.size() + 2;
        const std::string path = GroupPath(line.substr(at));
        kept +=
            fmt::format("{}:{}:{}\n", *Number(parts[0]), controllers, path.empty() ? "/" : path);
    }
    return kept;
}

// A text or number in the output of `ip -j addr` or `ip -j route`.
SavedJson SavedIpValue(const SavedJson& value, std::string_view key, Pseudonyms& names) {
    if (value.is_number()) return value;
    const auto text = value.get<std::string>();
    if (IsOneOf(key, "ifname dev link master")) return names.Interface(text.substr(0, 64));
    const bool word = IsOneOf(key, "operstate family");
    return SavedWords(text, word ? UnknownWord::kDrop : UnknownWord::kRename, names);
}

// An item of addr_info with an IPv4 address.
bool IsIpv4Info(const SavedJson& item) {
    const auto local = item.is_object() ? item.find("local") : item.end();
    return local != item.end() && local->is_string() && ParseIpv4(local->get<std::string>());
}

// The links or routes of `ip -j`. addresses: `list` is the addr_info of a link.
SavedJson SavedIp(const SavedJson& list, bool addresses, Pseudonyms& names) {
    constexpr std::string_view kFields =
        "ifname dev link master mtu metric prefixlen operstate family local dst gateway";
    SavedJson all = SavedJson::array();
    for (const SavedJson& item : list) {
        if (addresses && !IsIpv4Info(item)) continue;
        SavedJson kept = SavedJson::object();
        for (const auto& [field, value] : item.items()) {
            const bool plain = value.is_number() || value.is_string();
            if (plain && IsOneOf(field, kFields)) kept[field] = SavedIpValue(value, field, names);
            if (field == "addr_info" && value.is_array()) kept[field] = SavedIp(value, true, names);
        }
        all.push_back(std::move(kept));
    }
    return all;
}

std::string SavedIpJson(std::string_view text, Pseudonyms& names) {
    const SavedJson parsed = OrderedJsonOrDiscarded(text);
    if (!parsed.is_array()) return "";
    return SavedIp(parsed, false, names).dump(-1, ' ', false, SavedJson::error_handler_t::replace) +
           "\n";
}

std::string SavedLog(std::string_view text, Pseudonyms& names) {
    std::string kept;
    for (const LogLine& line : KernelLogLines(text, names)) {
        kept += (names.real() ? line.raw : line.known) + "\n";
    }
    // A log that was read but has no line for a rule differs from an empty log.
    const bool read = ReadableLog({ReadState::kFound, std::string(text)}).found();
    return kept.empty() && read ? kNoKnownLine : kept;
}

std::string SavedText(const SavedRow& row, std::string_view text, Pseudonyms& names) {
    switch (row.form) {
        case SavedForm::kThere: return "";
        case SavedForm::kValue:
        case SavedForm::kLines:
        case SavedForm::kFields:
        case SavedForm::kTable:
        case SavedForm::kRules:
        case SavedForm::kVersion: return SavedLines(row, text, names);
        case SavedForm::kParameters: return SavedParameters(text, row.keys, names);
        case SavedForm::kGrub: return SavedGrub(row, text, names);
        case SavedForm::kPath: return SavedPath(text, names);
        case SavedForm::kDevice: return SavedDevice(text, names);
        case SavedForm::kGid: return SavedGid(text, names);
        case SavedForm::kHost: return names.Host(Trim(text)) + "\n";
        case SavedForm::kGroup: return SavedGroup(text);
        case SavedForm::kIp: return SavedIpJson(text, names);
        case SavedForm::kLog: return SavedLog(text, names);
    }
    return "";
}

// ---- Paths ------------------------------------------------------------------------------------

// "weft-alice.service" -> "weft-net-3fa2.service"
std::optional<std::string> UnitName(std::string_view text, Pseudonyms& names) {
    if (!text.starts_with("weft") || !text.ends_with(".service")) return {};
    const std::string_view rest = text.substr(4, text.size() - 12);
    for (const char* usual : {"", "-worker", "-serve", "-train", "-run"}) {
        if (rest == usual) return std::string(text);
    }
    if (names.real()) return Printable(text);
    return fmt::format("weft-{}.service", names.Interface(rest.substr(rest.starts_with('-'))));
}

// Fills the placeholder of a pattern with the part of `text` that may be saved; nullopt: no match.
std::optional<std::string> Filled(std::string_view place, std::string_view text,
                                  Pseudonyms& names) {
    if (place == "more") return std::string();
    if (text.empty() || text.size() > 255) return {};
    if (place == "if") return names.Interface(text);
    if (place == "unit") return UnitName(text, names);
    if (place == "conf") return names.OrderedFile(text);
    if (place == "release") {
        std::string release = SavedVersion(text, names);
        return Contains(release, ".") ? std::optional(release) : std::nullopt;
    }
    if (place == "ip") {
        std::string shown = names.AddressText(text);
        return shown.empty() ? std::nullopt : std::optional(shown);
    }
    const bool fits =
        (place == "n" && AreDigits(text, 6)) ||
        (place == "id" && text.size() <= 16 &&
         text.find_first_not_of("0123456789-:.") == text.npos) ||
        (place == "pci" && IsPciAddress(text)) || (place == "word" && IsKnownWord(text)) ||
        (place == "icd" &&
         IsOneOf(text, "radeon amd amd_pro intel intel_hasvk nvidia nouveau lvp virtio")) ||
        std::ranges::count(Split(place, '|'), text) > 0;
    return fits ? std::optional(std::string(text)) : std::nullopt;
}

// Matches one segment of a path against one of a pattern.
std::optional<std::string> FillSegment(std::string_view pattern, std::string_view text,
                                       Pseudonyms& names) {
    const size_t open = pattern.find('<');
    if (open == pattern.npos)
        return pattern == text ? std::optional(std::string(text)) : std::nullopt;
    if (!text.starts_with(pattern.substr(0, open))) return {};
    const size_t close = pattern.find('>', open);
    const std::string_view place = pattern.substr(open + 1, close - open - 1);
    const std::string_view after = pattern.substr(close + 1);
    text.remove_prefix(open);
    const auto fill = [&](size_t size) -> std::optional<std::string> {
        const auto first = Filled(place, text.substr(0, size), names);
        if (!first) return {};
        const auto rest = FillSegment(after, text.substr(size), names);
        if (!rest) return {};
        return fmt::format("{}{}{}", pattern.substr(0, open), *first, *rest);
    };
    if (Contains(place, "|")) {  // the longest of these words that matches
        std::optional<std::string> best;
        for (std::string_view one : Split(place, '|')) {
            if (auto filled = text.starts_with(one) ? fill(one.size()) : std::nullopt)
                best = filled;
        }
        return best;
    }
    const std::string_view next = after.substr(0, after.find('<'));
    if (after.empty()) return fill(text.size());
    if (next.empty()) return fill(std::min(text.find_first_not_of("0123456789"), text.size()));
    const size_t end = next == after ? text.rfind(next) : text.find(next);
    return end == text.npos ? std::nullopt : fill(end);
}

struct Match {
    const SavedRow* row = nullptr;
    std::string path;  // as saved
};

// Matches `path`, a file or (with a trailing '/') a folder, against a row or a folder above it.
std::optional<Match> Fit(const SavedRow& row, std::string_view path, Pseudonyms& names) {
    const bool folder = path.ends_with('/');
    if (folder) path.remove_suffix(1);
    std::string_view pattern = row.path;
    const bool of_folder = pattern.ends_with('/');
    if (of_folder) pattern.remove_suffix(1);
    const auto wanted = Split(pattern, '/'), given = Split(path, '/');
    if (given.size() > wanted.size() || (!folder && given.size() != wanted.size())) return {};
    std::string shown;
    for (size_t i = 0; i < given.size(); ++i) {
        const auto segment = FillSegment(wanted[i], given[i], names);
        if (!segment) return {};
        shown += (i == 0 ? "" : "/") + *segment;
    }
    return Match{&row, folder || of_folder ? shown + "/" : shown};
}

// "sys/fs/cgroup/user.slice/alice.scope/memory.max": the group's path without names.
std::optional<Match> FindGroup(std::string_view path) {
    static constexpr SavedRow kRow = {"sys/fs/cgroup/*/memory.max, cpu.max", SavedForm::kValue};
    constexpr std::array<std::string_view, 6> kFiles = {
        "memory.max", "memory.high",      "memory.limit_in_bytes",
        "cpu.max",    "cpu.cfs_quota_us", "cpu.cfs_period_us"};
    constexpr std::string_view kRoot = "sys/fs/cgroup";
    std::string_view file = path;
    const bool folder = file.ends_with('/');
    if (folder) file.remove_suffix(1);
    const size_t slash = file.rfind('/');
    if (!file.starts_with(kRoot) || slash == file.npos || slash < kRoot.size()) return {};
    const std::string_view name = file.substr(slash + 1);
    if (std::ranges::find(kFiles, name) == kFiles.end()) return {};
    const std::string group = GroupPath(file.substr(kRoot.size(), slash - kRoot.size()));
    return Match{&kRow, fmt::format("{}{}/{}{}", kRoot, group, name, folder ? "/" : "")};
}

std::optional<Match> FindRow(std::string_view path, Pseudonyms& names) {
    // A listed command without output is dropped; it would hide that the output is missing.
    if (path.starts_with("cmd/") && path.ends_with('/')) return {};
    for (const SavedRow& row : SavedRows()) {
        if (auto match = Fit(row, path, names)) return match;
    }
    return FindGroup(path);
}

// Lines "PATH: why".
std::string Unread(std::string_view text, Pseudonyms& names) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const size_t colon = line.find(": ");
        if (colon == line.npos) continue;
        const auto match = FindRow(line.substr(0, colon), names);
        if (!match) continue;
        std::string why = SavedWords(line.substr(colon + 2), UnknownWord::kDrop, names);
        if (Trim(why).empty()) why = "it could not be read";
        kept += fmt::format("{}: {}\n", match->path, Trim(why));
    }
    return kept;
}

void CountSource(const SavedRow& row, std::vector<SavedSource>& sources) {
    const std::string path(row.path);
    auto found = std::ranges::find(sources, path, &SavedSource::path);
    if (found == sources.end()) {
        sources.push_back({path, SavedFormText(row.form), 0});
        found = sources.end() - 1;
    }
    ++found->files;
}

// Names of files in limits.d, modprobe.d and drop-in folders.
std::set<std::string> OrderedFiles(const SnapshotFiles& raw) {
    std::set<std::string> files;
    const auto add = [&](std::string_view path) {
        if (path.ends_with('/')) path.remove_suffix(1);
        const size_t folder = path.rfind(".d/");
        if (folder != path.npos && path.ends_with(".conf")) files.emplace(path.substr(folder + 3));
    };
    for (const auto& [path, text] : raw) {
        add(path);
        if (path != "unread") continue;
        for (std::string_view line : Lines(text)) add(line.substr(0, line.find(": ")));
    }
    return files;
}

// The entry of a port's GID table that a file or folder describes, as "PATH OF THE PORT N"; "":
// another path.
std::string GidEntryOf(std::string_view path) {
    if (!path.starts_with("sys/class/infiniband/")) return "";
    if (path.ends_with('/')) path.remove_suffix(1);
    for (std::string_view part : {"/gids/", "/gid_attrs/types/", "/gid_attrs/ndevs/"}) {
        const size_t at = path.find(part);
        if (at == path.npos) continue;
        return fmt::format("{} {}", path.substr(0, at), path.substr(at + part.size()));
    }
    return "";
}

// Entries without a GID. A table has 256 entries and more, most of them empty, and hosts with
// virtual functions have many tables: with all entries, a snapshot would have too many files. The
// first entry stays, as a sign that the table was read.
std::set<std::string> EmptyGids(const SnapshotFiles& raw) {
    std::set<std::string> empty;
    for (const auto& [path, text] : raw) {
        const bool gid = Contains(path, "/gids/") && !path.ends_with('/') && !path.ends_with("/0");
        const std::string_view bare = Trim(text);
        if (gid && !bare.empty() && bare.find_first_not_of("0:") == bare.npos) {
            empty.insert(GidEntryOf(path));
        }
    }
    empty.erase("");
    return empty;
}

}  // namespace

SnapshotFiles SavedFiles(const SnapshotFiles& raw, Pseudonyms& names,
                         std::vector<SavedSource>* sources) {
    constexpr std::string_view kLater = "later/";
    constexpr SavedRow kUnread = {"unread", SavedForm::kLines};
    SnapshotFiles files;
    names.OrderFiles(OrderedFiles(raw));
    const std::set<std::string> no_gids = EmptyGids(raw);
    for (const auto& [path, text] : raw) {
        if (path == kUnread.path) {
            if (std::string kept = Unread(text, names); !kept.empty()) {
                files[path] = std::move(kept);
                if (sources != nullptr) CountSource(kUnread, *sources);
            }
            continue;
        }
        if (no_gids.contains(GidEntryOf(path))) continue;
        std::string_view place = path;
        const bool later = place.starts_with(kLater);
        if (later) place.remove_prefix(kLater.size());
        // A saved snapshot can be saved again.
        if (place.starts_with("link/") && place.ends_with(kLinkEnd)) {
            place.remove_suffix(std::string_view(kLinkEnd).size());
        }
        const auto match = FindRow(place, names);
        if (!match) continue;
        const bool folder = match->path.ends_with('/');
        std::string saved = (later ? std::string(kLater) : "") + match->path;
        if (!folder && saved.starts_with("link/")) saved += kLinkEnd;
        files[saved] = folder ? "" : SavedText(*match->row, text, names);
        if (sources != nullptr && (!folder || match->row->form == SavedForm::kThere)) {
            CountSource(*match->row, *sources);
        }
    }
    DropCoveredFolders(files);
    return files;
}

}  // namespace weft::doctor

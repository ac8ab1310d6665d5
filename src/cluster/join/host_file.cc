#include "cluster/join/host_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/frame.h"
#include "net/addresses.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostHostFile = 1 << 20;

std::string_view Short(std::string_view name) {
    return name.substr(0, name.find('.'));
}

// A name also matches without its domain; an address (10.0.0.1) has no domain.
bool IsOwn(std::string_view host, const std::vector<std::string>& own) {
    const bool named = host.find_first_not_of("0123456789.:") != std::string_view::npos;
    return std::ranges::any_of(own, [&](const std::string& mine) {
        return mine == host || (named && Short(mine) == Short(host));
    });
}

// Length of the host in HOST, HOST:PORT or [IPV6]:PORT.
size_t HostEnd(std::string_view word) {
    const size_t colon = word.rfind(':');
    const bool port = colon != word.npos && (word.find(':') == colon || word[colon - 1] == ']');
    return port ? colon : word.size();
}

// A number of a range: "08"; nullopt: not one.
std::optional<uint32_t> NumberOf(std::string_view digits) {
    uint32_t value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
    return whole && digits.size() <= 9 ? std::optional(value) : std::nullopt;
}

// Appends the names of `text` without commas outside of brackets, whose ranges before `from` are
// expanded. False: a range is not one, or there are too many names.
bool ExpandName(std::string_view text, size_t from, std::vector<std::string>& names) {
    const size_t open = text.find('[', from), close = text.find(']', open);
    if (open == text.npos || text.substr(0, close).find(':') != text.npos) {
        names.emplace_back(text);
        return names.size() <= kMostRanks;
    }
    if (close == text.npos) return false;
    for (const std::string_view part : Split(text.substr(open + 1, close - open - 1), ',')) {
        const size_t dash = std::min(part.find('-'), part.size());
        const std::string_view first = part.substr(0, dash);
        const auto low = NumberOf(first);
        const auto high = dash == part.size() ? low : NumberOf(part.substr(dash + 1));
        if (!low || !high || *low > *high || *high - *low >= kMostRanks) return false;
        for (uint32_t number = *low; number <= *high; ++number) {
            const std::string name = fmt::format("{}{:0{}}{}", text.substr(0, open), number,
                                                 first.size(), text.substr(close + 1));
            const size_t next = name.size() - (text.size() - close - 1);
            if (!ExpandName(name, next, names)) return false;
        }
    }
    return true;
}

// Whether getaddrinfo may accept the host of HOST, HOST:PORT or [IPV6]:PORT. (Bytes of other
// languages' letters are left to it.)
bool MayBeHost(std::string_view word) {
    const auto is_letter = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || (c & 0x80) != 0;
    };
    const bool bracket = word.starts_with('[');
    const std::string_view inside = word.substr(1, word.find(']') - 1);
    if (bracket &&
        (inside.find(':') == inside.npos ||
         inside.substr(0, inside.find('%')).find_first_not_of("0123456789abcdefABCDEF:.") !=
             inside.npos)) {
        return false;  // a section of an INI file: [workers], [all:vars]
    }
    return (bracket || is_letter(word[0]) || word[0] == ':' || word[0] == '_') &&
           std::ranges::all_of(word, [&](char c) {
               return is_letter(c) || std::string_view("._-:[]%").find(c) != std::string_view::npos;
           });
}

// A line's words: a host, and perhaps "slots=1" and the unused "max_slots=8".
Status CheckLine(const std::vector<std::string_view>& words, const std::string& where) {
    const std::string_view host = words[0].substr(0, HostEnd(words[0]));
    if (const size_t at = host.find('@'); at != host.npos) {
        return MakeError(ErrorCode::kUsage,
                         "{}: '{}' names a user; a worker is reached without ssh: {}", where,
                         words[0], words[0].substr(at + 1));
    }
    for (const std::string_view word : std::span(words).subspan(1)) {
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const std::string_view digits = equals == word.npos ? "" : word.substr(equals + 1);
        int count = 0;
        const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), count);
        const bool known = name == "slots" || name == "max_slots" || name == "max-slots";
        if (!known || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
            return MakeError(ErrorCode::kUsage,
                             "{}: '{}'; expected a host a line, as b, b:7000 or b slots=1", where,
                             word);
        }
        if (name != "slots" || count == 1) continue;
        if (count == 0) {
            return MakeError(ErrorCode::kUsage,
                             "{}: {} gives {} no rank, but each line is a rank. Remove the line",
                             where, word, words[0]);
        }
        return MakeError(ErrorCode::kUsage,
                         "{}: {} on {}, but a worker runs one rank. Start a worker for each, on "
                         "ports of their own, and give each a line: {}:7000, {}:7001",
                         where, word, words[0], host, host);
    }
    return {};
}

// Names and addresses of this host that may be in a file.
std::vector<std::string> OwnNames() {
    std::vector<std::string> names = {"localhost"};
    char name[256] = "";
    if (::gethostname(name, sizeof name - 1) == 0) names.emplace_back(name);
    for (const net::LocalAddress& local : net::ListLocalAddresses()) names.push_back(local.address);
    return names;
}

}  // namespace

Result<std::vector<std::string>> ExpandHosts(std::string_view list, const std::string& where) {
    std::vector<std::string> hosts;
    while (!list.empty()) {
        size_t end = 0;
        for (bool inside = false; end < list.size() && (inside || list[end] != ','); ++end) {
            if (list[end] == '[' || list[end] == ']') inside = list[end] == '[';
        }
        const std::string_view name = list.substr(0, end);
        list.remove_prefix(std::min(list.size(), end + 1));
        const size_t first = hosts.size();
        constexpr size_t kMostName = 1024;  // DNS allows 253 bytes
        const bool known = name.empty() || (name.size() <= kMostName && ExpandName(name, 0, hosts));
        if (known && (hosts.size() == first || MayBeHost(hosts[first]))) continue;
        return MakeError(ErrorCode::kUsage,
                         "{}'{}' is not a host; expected b, b:7000, [IPV6]:7000 or a range as "
                         "b[01-04], with at most {} hosts",
                         where, name.substr(0, 100), kMostRanks);
    }
    return hosts;
}

Result<std::vector<std::string>> ParseHostFile(std::string_view text, const std::string& path,
                                               const std::vector<std::string>& own) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text.find('\0') != text.npos) {
        return MakeError(ErrorCode::kUsage,
                         "{} is not UTF-8 text (UTF-16?); convert it: iconv -f UTF-16 -t UTF-8 {} "
                         "> hosts.txt",
                         path, path);
    }
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    std::vector<std::string> hosts;
    bool names_any = false;
    for (int number = 1; !text.empty(); ++number) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const std::vector<std::string_view> words = Words(line.substr(0, line.find('#')));
        if (words.empty()) continue;
        names_any = true;
        const std::string where = fmt::format("{}:{}", path, number);
        WEFT_TRY(CheckLine(words, where));
        WEFT_ASSIGN(const auto names, ExpandHosts(words[0], where + ": "));
        for (const std::string& name : names) {
            if (words.size() > 1 && IsOwn(name, own)) {
                Log(LogLevel::kInfo, "{}: {} is this host, which is rank 0", where, name);
                continue;
            }
            hosts.push_back(name);
        }
    }
    if (names_any) return hosts;
    return MakeError(ErrorCode::kUsage, "{} lists no host; expected a host a line, as b or b:7000",
                     path);
}

Result<std::vector<std::string>> ReadHostFile(const std::string& path) {
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, kMostHostFile));
    return ParseHostFile(text, path, OwnNames());
}

}  // namespace weft::cluster

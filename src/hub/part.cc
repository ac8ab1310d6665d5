#include "hub/part.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"

namespace weft::hub {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr size_t kMostRanges = 1 << 18;

Error NotANote(const char* why) {
    return MakeError(ErrorCode::kCorrupt, "not a note of a partial file: {}", why);
}

bool Number(const json& value, uint64_t& number) {
    if (!value.is_number_unsigned()) return false;
    number = value.get<uint64_t>();
    return true;
}

}  // namespace

void RangeSet::Add(ByteRange range) {
    if (range.begin >= range.end) return;
    // The first range that ends at or after our begin; all ranges that touch ours follow it.
    const uint64_t begin = range.begin - std::min(range.begin, gap_);
    const uint64_t end = range.end + std::min(gap_, UINT64_MAX - range.end);
    auto first = std::ranges::lower_bound(ranges_, begin, {}, &ByteRange::end);
    auto last = first;
    for (; last != ranges_.end() && last->begin <= end; ++last) {
        range.begin = std::min(range.begin, last->begin);
        range.end = std::max(range.end, last->end);
        bytes_ -= last->end - last->begin;
    }
    bytes_ += range.end - range.begin;
    if (first == last) {
        ranges_.insert(first, range);
    } else {
        *first = range;
        ranges_.erase(first + 1, last);
    }
}

uint64_t RangeSet::Prefix() const {
    return ranges_.empty() || ranges_[0].begin != 0 ? 0 : ranges_[0].end;
}

bool RangeSet::Contains(ByteRange range) const {
    return MissingOf(range).empty();
}

std::vector<ByteRange> RangeSet::MissingOf(ByteRange range) const {
    std::vector<ByteRange> missing;
    uint64_t at = range.begin;
    auto there = std::ranges::upper_bound(ranges_, range.begin, {}, &ByteRange::end);
    for (; there != ranges_.end() && there->begin < range.end; ++there) {
        if (there->begin > at) missing.push_back({at, there->begin});
        at = there->end;
    }
    if (at < range.end) missing.push_back({at, range.end});
    return missing;
}

std::string PrintNote(const PartNote& note) {
    json ranges = json::array();
    for (const ByteRange& range : note.done.ranges()) {
        ranges.push_back(json::array({range.begin, range.end}));
    }
    const json text = {{"weft_part", kVersion},
                       {"hash", note.hash},
                       {"size", note.size},
                       {"etag", note.etag},
                       {"done", ranges}};
    return text.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<PartNote> ParseNote(std::string_view text) {
    const json parsed = JsonOrDiscarded(text);
    if (!parsed.is_object()) return NotANote("no JSON object");
    PartNote note;
    const auto version = parsed.find("weft_part"), hash = parsed.find("hash"),
               size = parsed.find("size"), etag = parsed.find("etag"), done = parsed.find("done");
    for (const auto& field : {version, hash, size, etag, done}) {
        if (field == parsed.end()) return NotANote("a field is missing");
    }
    if (*version != kVersion) return NotANote("of another version");
    if (!hash->is_string() || !etag->is_string() || !Number(*size, note.size)) {
        return NotANote("a field of another type");
    }
    if (!done->is_array() || done->size() > kMostRanges) return NotANote("no list of ranges");
    note.hash = hash->get<std::string>();
    note.etag = etag->get<std::string>();
    for (const json& pair : *done) {
        ByteRange range;
        const bool numbers = pair.is_array() && pair.size() == 2 && Number(pair[0], range.begin) &&
                             Number(pair[1], range.end);
        if (!numbers || range.begin >= range.end || range.end > note.size) {
            return NotANote("an invalid range");
        }
        note.done.Add(range);
    }
    return note;
}

Result<std::optional<RangeSet>> HeldRanges(const std::string& path) {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    if (error || !real.string().ends_with(kPartSuffix)) return std::optional<RangeSet>();
    const auto text = ReadTextFile(real.string() + kNoteSuffix, kMostNoteBytes);
    if (text.ok()) {
        const auto note = ParseNote(*text);
        const uint64_t size = std::filesystem::file_size(real, error);
        if (note.ok() && !error && note->size == size) return std::optional(note->done);
    }
    return MakeError(ErrorCode::kCorrupt,
                     "{}: an unfinished download without the note of its ranges. Run 'weft pull' "
                     "to download it again",
                     path);
}

}  // namespace weft::hub

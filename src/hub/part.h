// Which parts of a partly downloaded file are present: a set of byte ranges, and the note file that
// stores this set between runs.
//
// `weft pull --shard` also leaves partial files, permanently: they hold the ranges that one rank
// reads. Readers get the ranges from HeldRanges.
//
// The partial file is sparse and has the full size. The note lists the ranges that are present, the
// content's hash, and the server's ETag. If the note does not match, the download starts anew. Both
// files have other names than huggingface_hub's, which would treat a full-size file named
// HASH.incomplete as complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/http.h"

namespace weft::hub {

// Suffixes of the names of a partial file and of its note.
inline constexpr const char* kPartSuffix = ".weft.incomplete";
inline constexpr const char* kNoteSuffix = ".json";

// Disjoint, non-empty, non-adjacent ranges in ascending order.
class RangeSet {
  public:
    // gap: ranges at most this far apart are merged, including the bytes between them.
    explicit RangeSet(uint64_t gap = 0) : gap_(gap) {}
    void Add(ByteRange range);
    uint64_t bytes() const { return bytes_; }
    bool Contains(ByteRange range) const;
    // The end of the contiguous range from byte 0.
    uint64_t Prefix() const;
    // The parts of [0, size), or of `range`, that are missing.
    std::vector<ByteRange> Missing(uint64_t size) const { return MissingOf({0, size}); }
    std::vector<ByteRange> MissingOf(ByteRange range) const;
    const std::vector<ByteRange>& ranges() const { return ranges_; }

  private:
    std::vector<ByteRange> ranges_;
    uint64_t bytes_ = 0, gap_;
};

struct PartNote {
    std::string hash;  // of the whole content, from the Hub
    uint64_t size = 0;
    std::string etag;  // of the bytes, as the server sent it; may be empty
    RangeSet done;
};

inline constexpr uint64_t kMostNoteBytes = 8 << 20;

std::string PrintNote(const PartNote& note);
// Errors: kCorrupt if the text is not a note, or its ranges exceed the size.
Result<PartNote> ParseNote(std::string_view text);

// The ranges present in the file at `path`, if it is (or links to) a partial file; nullopt for any
// other file. Errors: kCorrupt for a partial file whose note is missing or has another size.
Result<std::optional<RangeSet>> HeldRanges(const std::string& path);

}  // namespace weft::hub

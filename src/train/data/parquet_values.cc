#include "train/data/parquet_values.h"

#include <algorithm>
#include <cstring>

namespace weft::train::parquet {
namespace {

enum Encoding {
    kPlain = 0,
    kPlainDictionary = 2,
    kRuns = 3,
    kDelta = 5,
    kDeltaLength = 6,
    kDeltaText = 7,
    kRunsDictionary = 8,
    kSplit = 9
};
constexpr std::string_view kNames[] = {
    "PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
    "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
    "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
constexpr uint64_t kMostBlock = 1 << 20;

// The `width` bits (0 to 64) from a bit on.
uint64_t Bits(ColumnBytes bytes, uint64_t bit, int width) {
    const uint64_t at = bit / 8;
    const int shift = static_cast<int>(bit % 8);
    const int used = (shift + width + 7) / 8;
    if (at > bytes.size() || bytes.size() - at < static_cast<uint64_t>(used)) {
        ColumnFail("a page ends within its values");
    }
    uint64_t low = 0;
    std::memcpy(&low, bytes.data() + at, static_cast<size_t>(std::min(used, 8)));
    low >>= shift;
    if (used > 8) low |= uint64_t{static_cast<uint8_t>(bytes[at + 8])} << (64 - shift);
    return width == 64 ? low : low & ((uint64_t{1} << width) - 1);
}

}  // namespace

uint64_t Runs::Next() {
    if (width_ == 0) return 0;
    while (left_ == 0) {
        const uint64_t head = Varint(bytes_, at_);
        packed_ = (head & 1) != 0;
        const auto width = static_cast<uint64_t>(width_);
        if (packed_) {
            if (head >> 1 > bytes_.size()) ColumnFail("a run leaves its page");
            left_ = (head >> 1) * 8;
            bit_ = at_ * 8;
            at_ += (head >> 1) * width;
        } else {
            left_ = head >> 1;
            value_ = Bits(bytes_, at_ * 8, (width_ + 7) / 8 * 8);
            at_ += (width + 7) / 8;
        }
    }
    --left_;
    if (!packed_) return value_;
    const uint64_t value = Bits(bytes_, bit_, width_);
    bit_ += static_cast<uint64_t>(width_);
    return value;
}

Deltas::Deltas(ColumnBytes bytes, uint64_t most) : bytes_(bytes) {
    const uint64_t block = Varint(bytes_, at_);
    parts_ = Varint(bytes_, at_);
    total_ = Varint(bytes_, at_);
    last_ = static_cast<uint64_t>(UnZigzag(Varint(bytes_, at_)));
    const bool sound = block > 0 && block <= kMostBlock && parts_ > 0 && block % parts_ == 0 &&
                       block / parts_ % 8 == 0 && total_ <= most;
    if (!sound) ColumnFail("a page of differences has an odd head");
    of_part_ = block / parts_;
    part_ = parts_;
    end_ = at_;
}

void Deltas::BeginPart() {
    at_ = end_;
    if (part_ == parts_) {
        least_ = static_cast<uint64_t>(UnZigzag(Varint(bytes_, at_)));
        if (at_ > bytes_.size() || parts_ > bytes_.size() - at_) {
            ColumnFail("a page ends within its values");
        }
        widths_ = bytes_.subspan(at_, parts_);
        at_ += parts_;
        part_ = 0;
    }
    width_ = static_cast<int>(widths_[part_++]);
    if (width_ > 64) ColumnFail("a page of differences has numbers of an odd size");
    left_ = of_part_;
    bit_ = at_ * 8;
    end_ = at_ + of_part_ / 8 * static_cast<uint64_t>(width_);
}

int64_t Deltas::Next() {
    if (given_ >= total_) ColumnFail("a page ends within its values");
    if (given_++ > 0) {
        if (left_ == 0) BeginPart();
        --left_;
        last_ += least_ + Bits(bytes_, bit_, width_);
        bit_ += static_cast<uint64_t>(width_);
    }
    return static_cast<int64_t>(last_);
}

ColumnBytes Deltas::Rest() const {
    Deltas all = *this;
    for (uint64_t rest = total_ > 0 ? total_ - 1 : 0; rest > 0; rest -= std::min(rest, of_part_)) {
        all.BeginPart();
    }
    if (all.end_ > bytes_.size()) ColumnFail("a page ends within its values");
    return bytes_.subspan(all.end_);
}

Dictionary::Dictionary(std::vector<std::byte> bytes, uint64_t count, const LeafType& type)
    : bytes_(std::move(bytes)), count_(count), width_(type.bytes) {
    const auto least = static_cast<uint64_t>(width_ > 0 ? width_ : 4);
    if (count > bytes_.size() / least) ColumnFail("a dictionary ends too early");
    if (width_ > 0) return;
    begins_.reserve(count);
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; ++i) {
        begins_.push_back(static_cast<uint32_t>(at));
        at += 4 + uint64_t{NumberAt<uint32_t>(bytes_, at)};
        if (at > bytes_.size()) ColumnFail("a dictionary ends too early");
    }
}

ColumnBytes Dictionary::At(uint64_t index) const {
    if (index >= count_) ColumnFail("a value is not in its dictionary");
    const ColumnBytes all = bytes_;
    const auto width = static_cast<uint64_t>(width_);
    if (width_ > 0) return all.subspan(index * width, width);
    return all.subspan(begins_[index] + 4, NumberAt<uint32_t>(all, begins_[index]));
}

Values::Values(const LeafType& type, int encoding, ColumnBytes bytes, uint64_t most,
               const Dictionary& dictionary)
    : type_(&type), dictionary_(&dictionary), encoding_(encoding), bytes_(bytes) {
    const Physical physical = type.physical;
    const bool text = physical == Physical::kText, fixed = physical == Physical::kFixed;
    const bool integer = physical == Physical::kInt32 || physical == Physical::kInt64;
    const bool boolean = physical == Physical::kBool;
    bool fits = encoding == kPlain;
    if (encoding == kPlainDictionary || encoding == kRunsDictionary) {
        fits = !boolean;
        const int width = bytes.empty() ? 0 : static_cast<int>(bytes[0]);
        if (width > 32) ColumnFail("a page has an odd size of places in the dictionary");
        runs_ = Runs(bytes.subspan(bytes.empty() ? 0 : 1), width);
    } else if (encoding == kRuns && boolean) {
        fits = true;
        const uint64_t size = NumberAt<uint32_t>(bytes, 0);
        if (size > bytes.size() - 4) ColumnFail("a page ends within its values");
        runs_ = Runs(bytes.subspan(4, size), 1);
    } else if (encoding == kDelta && integer) {
        fits = true;
        lengths_ = Deltas(bytes, most);
    } else if ((encoding == kDeltaLength && text) || (encoding == kDeltaText && (text || fixed))) {
        fits = true;
        if (encoding == kDeltaText) {
            prefixes_ = Deltas(bytes, most);
            bytes_ = prefixes_.Rest();
        }
        lengths_ = Deltas(bytes_, most);
        bytes_ = lengths_.Rest();
    } else if (encoding == kSplit) {
        fits = !text && !boolean;
    }
    if (fits) return;
    const bool known = encoding >= 0 && encoding < static_cast<int>(std::size(kNames));
    ColumnFail(fmt::format("column '{}' has the encoding {}, which is not read", type.name,
                           known ? std::string(kNames[encoding]) : fmt::format("{}", encoding)),
               ErrorCode::kUnsupported);
}

ColumnBytes Values::Take(uint64_t size) {
    if (at_ > bytes_.size() || size > bytes_.size() - at_) {
        ColumnFail("a page ends within its values");
    }
    at_ += size;
    return bytes_.subspan(at_ - size, size);
}

ColumnBytes Values::NextDelta() {
    const int64_t number = lengths_.Next();
    if (encoding_ == kDelta) {
        value_.resize(static_cast<size_t>(type_->bytes));
        std::memcpy(value_.data(), &number, value_.size());
        return value_;
    }
    const ColumnBytes own = Take(number < 0 ? UINT64_MAX : static_cast<uint64_t>(number));
    if (encoding_ == kDeltaLength) return own;
    const int64_t prefix = prefixes_.Next();
    if (prefix < 0 || static_cast<uint64_t>(prefix) > value_.size() ||
        value_.size() + own.size() > kMostLineBytes) {
        ColumnFail("a string continues a shorter one");
    }
    value_.resize(static_cast<size_t>(prefix));
    value_.insert(value_.end(), own.begin(), own.end());
    return value_;
}

ColumnBytes Values::Next() {
    const auto width = static_cast<uint64_t>(type_->bytes);
    switch (encoding_) {
        case kPlainDictionary:
        case kRunsDictionary: return dictionary_->At(runs_.Next());
        case kRuns: value_.assign(1, static_cast<std::byte>(runs_.Next())); return value_;
        case kDelta:
        case kDeltaLength:
        case kDeltaText: {
            const ColumnBytes value = NextDelta();
            if (type_->physical == Physical::kFixed && value.size() != width) {
                ColumnFail("a value has an odd size");
            }
            return value;
        }
        case kSplit: {
            const uint64_t count = bytes_.size() / width;
            if (at_ >= count) ColumnFail("a page ends within its values");
            value_.resize(width);
            for (uint64_t i = 0; i < width; ++i) value_[i] = bytes_[i * count + at_];
            ++at_;
            return value_;
        }
        default: break;
    }
    if (type_->physical == Physical::kBool) {
        value_.assign(1, static_cast<std::byte>(Bits(bytes_, at_++, 1)));
        return value_;
    }
    return Take(width > 0 ? width : NumberAt<uint32_t>(Take(4), 0));
}

}  // namespace weft::train::parquet

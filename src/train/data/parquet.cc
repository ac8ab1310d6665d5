#include "train/data/parquet.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "train/data/parquet_codec.h"
#include "train/data/parquet_footer.h"
#include "train/data/parquet_values.h"

namespace weft::train {
namespace parquet {
namespace {

constexpr uint64_t kHeadBytes = 4 << 10, kMostHeadBytes = 16 << 20;
constexpr uint64_t kSurelyFineBytes = 64 << 20;  // of a page, for any ratio
constexpr uint64_t kMostRatio = 200;

// The values of a column in a row group, with their levels.
class LeafReader {
  public:
    // held: bytes of the pages of all columns.
    LeafReader(const File& file, const LeafType& type, uint64_t& held)
        : file_(file), type_(type), held_(held) {}

    void Start(const Chunk& chunk) {
        chunk_ = &chunk;
        at_ = chunk.begin;
        if (at_ > file_.size_bytes() || chunk.bytes > file_.size_bytes() - at_) {
            ColumnFail("a part lies behind its end");
        }
        end_ = at_ + chunk.bytes;
        left_ = chunk.values;
        left_of_page_ = 0;
        dictionary_ = {};
        Hold(dictionary_held_, 0);
        Step();
    }
    bool at_end() const { return at_end_; }
    int definition() const { return definition_; }
    int repetition() const { return repetition_; }  // at the end: 0

    // Passes over the value; writes it, or null.
    void Take(int repetition, RecordLines* out) {
        if (at_end_ || repetition_ != repetition) {
            ColumnFail(fmt::format("column '{}' has other records than its row group", type_.name));
        }
        const bool is_null = definition_ < type_.most_definition;
        const ColumnBytes value = is_null ? ColumnBytes() : values_.Next();
        if (out != nullptr) is_null ? out->Null() : out->Value(type_.scalar, value, type_.name);
        Step();
    }

  private:
    void Step() {
        while (left_of_page_ == 0 && left_ > 0) NextPage();
        at_end_ = left_ == 0;
        repetition_ = definition_ = 0;
        if (at_end_) return;
        --left_;
        --left_of_page_;
        repetition_ = Level(repetitions_, type_.most_repetition);
        definition_ = Level(definitions_, type_.most_definition);
    }
    static int Level(Runs& levels, int most) {
        const uint64_t level = levels.Next();
        if (level > static_cast<uint64_t>(most)) ColumnFail("a level is too high");
        return static_cast<int>(level);
    }

    // Counts memory: own becomes `bytes`.
    void Hold(uint64_t& own, uint64_t bytes) {
        held_ -= std::exchange(own, 0);
        if (bytes > kMostColumnBytes - held_) {
            ColumnFail(fmt::format("the pages of its columns have more than {} bytes at a time",
                                   kMostColumnBytes),
                       ErrorCode::kUnsupported);
        }
        held_ += own = bytes;
    }

    PageHeader NextHeader() {
        for (uint64_t size = kHeadBytes;; size *= 16) {
            std::vector<std::byte> head(std::min(size, end_ - at_));
            ReadInto(file_, at_, head);
            if (const auto header = ParsePageHeader(head)) return *header;
            if (size > end_ - at_ || size >= kMostHeadBytes) {
                ColumnFail(fmt::format("column '{}' ends too early", type_.name));
            }
        }
    }

    void NextPage() {
        const PageHeader header = NextHeader();
        at_ += header.header_bytes;
        if (header.packed_bytes > end_ - at_) ColumnFail("a page leaves its column");
        const uint64_t begin = at_;
        at_ += header.packed_bytes;
        const bool dictionary = header.kind == PageHeader::kDictionary;
        const bool data = header.kind == PageHeader::kData || header.kind == PageHeader::kDataV2;
        if (!dictionary && (!data || header.values == 0)) return;
        const uint64_t most = std::max(kSurelyFineBytes, kMostRatio * header.packed_bytes);
        if (header.packed_bytes > kMostColumnBytes ||
            header.bytes > std::min(most, kMostColumnBytes)) {
            ColumnFail(fmt::format("a page has {} bytes, {} compressed", header.bytes,
                                   header.packed_bytes),
                       ErrorCode::kUnsupported);
        }
        std::vector<std::byte> packed(header.packed_bytes);
        ReadInto(file_, begin, packed);
        Hold(page_held_, std::max<uint64_t>(page_.capacity(), header.bytes));
        page_.resize(header.bytes);
        if (dictionary) return TakeDictionary(header, packed);
        if (header.values > left_) ColumnFail("a page has too many values");
        left_of_page_ = header.values;
        header.kind == PageHeader::kData ? TakePage(header, packed) : TakePageV2(header, packed);
    }

    void TakeDictionary(const PageHeader& header, ColumnBytes packed) {
        if (!dictionary_.empty()) ColumnFail("a column has two dictionaries");
        Unpack(chunk_->codec, packed, page_, type_.name);
        Hold(page_held_, 0);
        Hold(dictionary_held_, 2 * page_.capacity());  // (with the places of texts)
        dictionary_ = Dictionary(std::exchange(page_, {}), header.values, type_);
    }

    void TakePage(const PageHeader& header, ColumnBytes packed) {
        Unpack(chunk_->codec, packed, page_, type_.name);
        ColumnBytes rest = page_;
        const auto levels = [&](int most, int encoding) {
            if (most == 0) return Runs();
            constexpr int kRuns = 3;
            if (encoding != kRuns) {
                ColumnFail("levels have an old encoding", ErrorCode::kUnsupported);
            }
            const uint64_t size = NumberAt<uint32_t>(rest, 0);
            if (size > rest.size() - 4) ColumnFail("levels leave their page");
            const Runs made(rest.subspan(4, size), std::bit_width(static_cast<unsigned>(most)));
            rest = rest.subspan(4 + size);
            return made;
        };
        repetitions_ = levels(type_.most_repetition, header.repetition_encoding);
        definitions_ = levels(type_.most_definition, header.definition_encoding);
        values_ = Values(type_, header.encoding, rest, header.values, dictionary_);
    }

    // (The levels come first, and are never compressed.)
    void TakePageV2(const PageHeader& header, ColumnBytes packed) {
        const uint64_t repetition = header.repetition_bytes, definition = header.definition_bytes;
        const uint64_t least = std::min<uint64_t>(packed.size(), page_.size());
        if (repetition > least || definition > least - repetition) {
            ColumnFail("levels leave their page");
        }
        const uint64_t levels = repetition + definition;
        std::ranges::copy(packed.first(levels), page_.begin());
        const auto values = std::span(page_).subspan(levels);
        const int codec = header.is_packed && packed.size() > levels ? chunk_->codec : 0;
        Unpack(codec, packed.subspan(levels), values, type_.name);
        const ColumnBytes page = page_;
        const auto runs = [&](uint64_t begin, uint64_t size, int most) {
            return Runs(page.subspan(begin, size), std::bit_width(static_cast<unsigned>(most)));
        };
        repetitions_ = runs(0, repetition, type_.most_repetition);
        definitions_ = runs(repetition, definition, type_.most_definition);
        values_ = Values(type_, header.encoding, values, header.values, dictionary_);
    }

    const File& file_;
    const LeafType& type_;
    uint64_t& held_;
    const Chunk* chunk_ = nullptr;
    uint64_t at_ = 0, end_ = 0, left_ = 0, left_of_page_ = 0;
    uint64_t page_held_ = 0, dictionary_held_ = 0;
    std::vector<std::byte> page_;
    Dictionary dictionary_;
    Runs repetitions_, definitions_;
    Values values_;
    int repetition_ = 0, definition_ = 0;
    bool at_end_ = true;
};

class Reader {
  public:
    Reader(const File& file, const RecordLines::Take& take)
        : footer_(ReadFooter(file)), lines_(take) {
        for (const LeafType& type : footer_.leaves) leaves_.emplace_back(file, type, held_);
    }

    Status Run() {
        for (const RowGroup& group : footer_.groups) {
            for (size_t i = 0; i < leaves_.size(); ++i) leaves_[i].Start(group.chunks[i]);
            for (uint64_t i = 0; i < group.records; ++i) {
                Write(footer_.record, 0);
                WEFT_TRY(lines_.EndRecord());
            }
            if (!std::ranges::all_of(leaves_, &LeafReader::at_end)) {
                ColumnFail("a row group has more values than records");
            }
        }
        return lines_.Flush();
    }

  private:
    // repetition: the level of the first value of each column.
    void Write(const Node& node, int repetition) {
        LeafReader& first = leaves_[node.first_leaf];
        if (node.kind == Node::kLeaf) return first.Take(repetition, &lines_);
        const int definition = first.definition();
        if (definition < node.definition) {
            Drop(node, repetition);
            return lines_.Null();
        }
        if (node.kind == Node::kStruct) {
            lines_.Begin('{');
            for (const Node& child : node.children) {
                lines_.Key(child.key);
                Write(child, repetition);
            }
            return lines_.End('}');
        }
        lines_.Begin('[');
        if (definition < node.element_definition) {
            Drop(node, repetition);
        } else {
            Write(node.children[0], repetition);
            while (first.repetition() == node.element_repetition) {
                Write(node.children[0], node.element_repetition);
            }
        }
        lines_.End(']');
    }
    // Passes over a null, or an empty list.
    void Drop(const Node& node, int repetition) {
        for (size_t i = node.first_leaf; i < node.end_leaf; ++i) {
            leaves_[i].Take(repetition, nullptr);
        }
    }

    const Footer footer_;
    uint64_t held_ = 0;
    std::vector<LeafReader> leaves_;
    RecordLines lines_;
};

}  // namespace
}  // namespace parquet

Status ReadParquet(const File& file, const RecordLines::Take& take) {
    try {
        return parquet::Reader(file, take).Run();
    } catch (const ColumnFault& fault) {
        return MakeError(fault.code, "{}: it can't be read as a Parquet file: {}", file.path(),
                         fault.what);
    } catch (const Error& error) {
        return error;
    }
}

}  // namespace weft::train

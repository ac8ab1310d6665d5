#include "backend/gpu/memory/step_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <vector>

namespace weft::backend::on_gpu {
namespace {

constexpr int32_t kLeastPositions = 64;
constexpr int64_t kLeastCopies = 64;

int32_t BlocksOf(const StepSequence& sequence) {
    return (sequence.row_count + kBlockRows - 1) / kBlockRows;
}

// Number of pages that a sequence's rows see; it may own more.
int64_t PagesOf(const StepSequence& sequence, int64_t page_tokens) {
    const int64_t end = int64_t{sequence.position} + sequence.row_count;
    return std::min((end + page_tokens - 1) / page_tokens,
                    static_cast<int64_t>(sequence.pages.size()));
}

// Lays out tables one after another, aligned for kernels.
class Cursor {
  public:
    explicit Cursor(uint64_t base) : base_(base) {}
    uint64_t Take(int64_t count, size_t each) {
        const uint64_t at = size_;
        size_ += (static_cast<uint64_t>(count) * each + 63) / 64 * 64;
        return base_ + at;
    }
    uint64_t size() const { return size_; }

  private:
    uint64_t base_, size_ = 0;
};

// Row numbers sorted by token, rows of one token ascending.
std::vector<int32_t> OrderOf(std::span<const int32_t> tokens) {
    std::vector<int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::ranges::stable_sort(rows, {},
                             [&](int32_t row) { return tokens[static_cast<size_t>(row)]; });
    return rows;
}

void WriteStates(const Step& step, StateEntry* states, int32_t* writes) {
    int32_t count = 0;
    for (const StepSequence& s : step.sequences) {
        if (s.row_count == 0) continue;
        const auto own = static_cast<int32_t>(s.state_writes.size());
        *states++ = {s.row_begin, s.row_count, s.state_from, s.state_to, count, own};
        WEFT_CHECK(own <= 2 * s.row_count);
        for (const auto& [row, slot] : s.state_writes) {
            *writes++ = row;
            *writes++ = slot;
        }
        count += own;
    }
}

// scalars: set to the offset of the update scalars.
StepTables LayFixed(uint64_t base, const CompileOptions& options, uint64_t* bytes,
                    uint64_t* scalars) {
    Cursor cursor(base);
    const int64_t rows = options.max_tokens;
    StepTables tables;
    tables.tokens = cursor.Take(rows, sizeof(int32_t));
    tables.positions = cursor.Take(rows, sizeof(int32_t));
    tables.token_types = cursor.Take(rows, sizeof(int32_t));
    tables.output_rows = cursor.Take(options.max_outputs, sizeof(int32_t));
    tables.row_sequence = cursor.Take(rows, sizeof(int32_t));
    tables.sequences = cursor.Take(rows, sizeof(SequenceEntry));
    tables.blocks = cursor.Take(rows, sizeof(BlockEntry));
    // (A step stores the state after a row at most twice, except each sequence's last state:
    // step.h.)
    const int64_t states = options.state_slots > 0 ? rows : 0;
    tables.states = cursor.Take(states, sizeof(StateEntry));
    tables.state_writes = cursor.Take(2 * states, 2 * sizeof(int32_t));
    tables.targets = cursor.Take(options.max_outputs, sizeof(int32_t));
    tables.token_order = cursor.Take(rows, sizeof(int32_t));
    tables.loss_gradient = cursor.Take(options.max_outputs * options.output_columns, sizeof(float));
    tables.side_gradient = cursor.Take(1, sizeof(float));
    tables.noise_keys = cursor.Take(rows, sizeof(int32_t));
    tables.noise_amplitudes = cursor.Take(rows, sizeof(float));
    *scalars = cursor.Take(UpdateScalars::kMost, sizeof(float));
    *bytes = cursor.size();
    return tables;
}

uint64_t PageTableBytes(int64_t pages, int64_t copies) {
    Cursor sizes(0);
    sizes.Take(pages, sizeof(int32_t));
    sizes.Take(copies, 2 * sizeof(int32_t));
    return sizes.size();
}

}  // namespace

StepShape ShapeOf(const Step& step, bool adapts) {
    StepShape shape;
    shape.rows = static_cast<int32_t>(step.tokens.size());
    shape.outputs = static_cast<int32_t>(step.output_rows.size());
    int32_t most = kLeastPositions;
    for (const StepSequence& sequence : step.sequences) {
        if (sequence.row_count == 0) continue;
        ++shape.sequences;
        shape.blocks += BlocksOf(sequence);
        most = std::max(most, sequence.position + sequence.row_count);
        shape.adapted = shape.adapted || (adapts && sequence.adapter != 0);
    }
    shape.positions = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(most)));
    shape.streams = step.streams;
    return shape;
}

std::array<uint64_t, 2> TableMemory::Sizes(const CompileOptions& options) {
    uint64_t bytes = 0, scalars = 0;
    LayFixed(0, options, &bytes, &scalars);
    return {bytes, PageTableBytes(std::max<int64_t>(options.kv_pages, 1), kLeastCopies)};
}

Status TableMemory::Allocate(gpu::Device& device, const CompileOptions& options) {
    uint64_t bytes = 0;
    LayFixed(0, options, &bytes, &scalars_);
    WEFT_ASSIGN(fixed_, device.Allocate(bytes, gpu::Place::kHost));
    tables_ = LayFixed(fixed_.address(), options, &bytes, &scalars_);
    page_tokens_ = options.page_tokens;
    has_state_ = options.state_slots > 0;
    return AllocatePages(device, std::max<int64_t>(options.kv_pages, 1), kLeastCopies);
}

UpdateScalars TableMemory::scalars() const {
    auto* const memory = reinterpret_cast<float*>(fixed_.host() + (scalars_ - fixed_.address()));
    return UpdateScalars({memory, UpdateScalars::kMost}, scalars_);
}

Status TableMemory::AllocatePages(gpu::Device& device, int64_t pages, int64_t copies) {
    WEFT_ASSIGN(pages_, device.Allocate(PageTableBytes(pages, copies), gpu::Place::kHost));
    Cursor cursor(pages_.address());
    tables_.pages = cursor.Take(pages, sizeof(int32_t));
    tables_.copies = cursor.Take(copies, 2 * sizeof(int32_t));
    most_pages_ = pages;
    most_copies_ = copies;
    return {};
}

// Sequences may share pages, so only this step's own size bounds the tables.
Result<bool> TableMemory::MakeSpace(gpu::Device& device, const Step& step) {
    int64_t pages = 0;
    for (const StepSequence& sequence : step.sequences) pages += PagesOf(sequence, page_tokens_);
    const auto copies = static_cast<int64_t>(step.copies.size());
    if (pages <= most_pages_ && copies <= most_copies_) return false;
    WEFT_TRY(AllocatePages(device, std::max(2 * pages, most_pages_),
                           std::max(2 * copies, most_copies_)));
    return true;
}

void TableMemory::Write(const Step& step) {
    const auto at = [](const gpu::Buffer& buffer, uint64_t address) {
        return buffer.host() + (address - buffer.address());
    };
    const auto put = [&](uint64_t address, std::span<const int32_t> values) {
        if (!values.empty()) {
            std::memcpy(at(fixed_, address), values.data(), values.size_bytes());
        }
    };
    put(tables_.tokens, step.tokens);
    put(tables_.positions, step.positions);
    put(tables_.output_rows, step.output_rows);
    if (!step.targets.empty()) {
        put(tables_.targets, step.targets);
        put(tables_.token_order, OrderOf(step.tokens));
        put(tables_.noise_keys, step.noise_keys);
        WriteNoise(step, at(fixed_, tables_.noise_amplitudes));
    }
    WriteLossGradients(step, at(fixed_, tables_.loss_gradient));
    std::memcpy(at(fixed_, tables_.side_gradient), &step.side_gradient, sizeof(float));
    auto* const row_sequence = reinterpret_cast<int32_t*>(at(fixed_, tables_.row_sequence));
    auto* const sequences = reinterpret_cast<SequenceEntry*>(at(fixed_, tables_.sequences));
    auto* blocks = reinterpret_cast<BlockEntry*>(at(fixed_, tables_.blocks));
    auto* const types = reinterpret_cast<int32_t*>(at(fixed_, tables_.token_types));
    auto* const pages = reinterpret_cast<int32_t*>(at(pages_, tables_.pages));
    int32_t count = 0, page = 0;
    for (const StepSequence& s : step.sequences) {
        if (s.row_count == 0) continue;
        sequences[count] = {s.row_begin, s.row_count, s.position, page, s.adapter};
        std::fill_n(row_sequence + s.row_begin, s.row_count, count);
        for (int32_t i = 0; i < s.row_count; ++i) {
            types[s.row_begin + i] = s.second >= 0 && s.position + i >= s.second ? 1 : 0;
        }
        for (int32_t row = 0; row < s.row_count; row += kBlockRows) {
            *blocks++ = {count, s.row_begin + row, std::min(kBlockRows, s.row_count - row)};
        }
        const int64_t seen = PagesOf(s, page_tokens_);
        std::copy_n(s.pages.begin(), seen, pages + page);
        page += static_cast<int32_t>(seen);
        ++count;
    }
    if (has_state_) {
        WriteStates(step, reinterpret_cast<StateEntry*>(at(fixed_, tables_.states)),
                    reinterpret_cast<int32_t*>(at(fixed_, tables_.state_writes)));
    }
    auto* copies = reinterpret_cast<int32_t*>(at(pages_, tables_.copies));
    for (const PageCopy& copy : step.copies) {
        *copies++ = copy.from;
        *copies++ = copy.to;
    }
}

}  // namespace weft::backend::on_gpu

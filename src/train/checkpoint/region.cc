#include "train/checkpoint/region.h"

#include <algorithm>
#include <map>

namespace weft::train {
namespace {

constexpr size_t kMostName = 512;

struct Range {
    int64_t begin, end;
};

Range Common(Range a, Range b) {
    return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Rows of the array that the region touches.
Range RowsOf(const TensorRegion& r) {
    return {r.row_begin + r.begin / r.col_count, r.row_begin + (r.end - 1) / r.col_count + 1};
}

// Columns of the array that the region covers in one of these rows.
Range ColsOf(const TensorRegion& r, int64_t row) {
    const int64_t first = (row - r.row_begin) * r.col_count;
    return {r.col_begin + std::max<int64_t>(r.begin - first, 0),
            r.col_begin + std::min(r.end - first, r.col_count)};
}

int64_t PlaceOf(const TensorRegion& r, int64_t row, int64_t col) {
    return (row - r.row_begin) * r.col_count + (col - r.col_begin) - r.begin;
}

// A region as at most three rectangles: part of its first row, whole rows, and part of its last
// row.
struct Rectangle {
    Range rows, cols;
};

void AddRectangles(const TensorRegion& region, std::vector<Rectangle>& out) {
    const Range all = RowsOf(region);
    int64_t row = all.begin;
    while (row < all.end) {
        const Range cols = ColsOf(region, row);
        const Range last = ColsOf(region, all.end - 1);
        int64_t end = row + 1;
        // The rows between the first and the last have equal columns; the first and last may have
        // too.
        if (row > all.begin || cols.end - cols.begin == region.col_count) {
            const bool last_is_whole = last.end - last.begin == region.col_count;
            end = std::max(end, last_is_whole ? all.end : all.end - 1);
        }
        out.push_back({{row, end}, cols});
        row = end;
    }
}

// changes: by column, the number of rectangles that begin minus the number that end. The running
// sum is the number of rectangles that cover a column.
bool CoversRow(const std::map<int64_t, int64_t>& changes, int64_t cols) {
    int64_t open = 0, at = 0;
    for (const auto& [col, change] : changes) {
        if (open == 0 && col > at) return false;
        open += change;
        at = col;
        if (open == 0 && at >= cols) return true;
    }
    return false;
}

}  // namespace

bool IsValidArray(const Array& array) {
    const bool named = !array.kind.empty() && !array.tensor.empty() &&
                       array.kind.size() <= kMostName && array.tensor.size() <= kMostName;
    return named && array.rows > 0 && array.cols > 0 && array.rows <= kMostElements / array.cols;
}

bool IsInside(const TensorRegion& r, const Array& array) {
    const bool block = r.row_begin >= 0 && r.row_count > 0 && r.row_count <= array.rows &&
                       r.row_begin <= array.rows - r.row_count && r.col_begin >= 0 &&
                       r.col_count > 0 && r.col_count <= array.cols &&
                       r.col_begin <= array.cols - r.col_count;
    return block && r.begin >= 0 && r.begin < r.end && r.end <= r.row_count * r.col_count;
}

void ForEachRun(const TensorRegion& a, const TensorRegion& b,
                const std::function<void(int64_t, int64_t, int64_t)>& run) {
    const Range rows = Common(RowsOf(a), RowsOf(b));
    int64_t a_at = 0, b_at = 0, count = 0;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const Range cols = Common(ColsOf(a, row), ColsOf(b, row));
        if (cols.begin >= cols.end) continue;
        const int64_t a_now = PlaceOf(a, row, cols.begin), b_now = PlaceOf(b, row, cols.begin);
        if (count > 0 && a_now == a_at + count && b_now == b_at + count) {
            count += cols.end - cols.begin;
            continue;
        }
        if (count > 0) run(a_at, b_at, count);
        a_at = a_now, b_at = b_now, count = cols.end - cols.begin;
    }
    if (count > 0) run(a_at, b_at, count);
}

bool Extend(TensorRegion& region, const TensorRegion& next) {
    const int64_t held = region.row_count * region.col_count;
    const bool below = next.row_begin == region.row_begin + region.row_count &&
                       next.col_begin == region.col_begin && next.col_count == region.col_count;
    if (!below || region.end != held || next.begin != 0) return false;
    region.row_count += next.row_count;
    region.end += next.end;
    return true;
}

bool Cover(const std::vector<TensorRegion>& regions, const Array& array) {
    std::vector<Rectangle> rectangles;
    for (const TensorRegion& region : regions) AddRectangles(region, rectangles);
    // Sweeps the rows from the top and stops at rows where a rectangle begins or ends.
    struct Event {
        int64_t row;
        Range cols;
        int64_t change;
    };
    std::vector<Event> events;
    for (const Rectangle& r : rectangles) {
        events.push_back({r.rows.begin, r.cols, 1});
        events.push_back({r.rows.end, r.cols, -1});
    }
    std::ranges::sort(events, {}, &Event::row);
    std::map<int64_t, int64_t> changes;
    const auto change = [&](int64_t col, int64_t by) {
        if ((changes[col] += by) == 0) changes.erase(col);
    };
    int64_t row = 0;
    for (size_t i = 0; i < events.size();) {
        if (events[i].row > row && !CoversRow(changes, array.cols)) return false;
        row = events[i].row;
        for (; i < events.size() && events[i].row == row; ++i) {
            change(events[i].cols.begin, events[i].change);
            change(events[i].cols.end, -events[i].change);
        }
    }
    return row == array.rows;
}

}  // namespace weft::train

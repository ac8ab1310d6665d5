#include "engine/batch/pages.h"

#include <utility>

#include "base/check.h"

namespace weft::engine {

PagePool::PagePool(int64_t pages) : pages_(static_cast<size_t>(pages)) {
    for (auto page = static_cast<int32_t>(pages - 1); page >= 0; --page) free_.push_back(page);
}

const PagePool::Page& PagePool::at(int32_t page) const {
    WEFT_CHECK(page >= 0 && std::cmp_less(page, pages_.size()));
    return pages_[static_cast<size_t>(page)];
}

// Every change of a page goes through here, which keeps the counts of free and idle pages.
void PagePool::Change(int32_t page, int32_t holders, bool cached) {
    WEFT_CHECK(holders >= 0);
    Page& p = pages_[static_cast<size_t>(page)];
    const bool was_idle = p.holders == 0 && p.cached;
    p.holders = holders;
    p.cached = cached;
    const bool is_idle = holders == 0 && cached;
    idle_ += (is_idle ? 1 : 0) - (was_idle ? 1 : 0);
    if (holders == 0 && !cached) free_.push_back(page);
}

int32_t PagePool::Take() {
    WEFT_CHECK(!free_.empty());
    const int32_t page = free_.back();
    free_.pop_back();
    Change(page, 1, false);
    return page;
}

void PagePool::Hold(int32_t page) {
    WEFT_CHECK(at(page).holders > 0 || at(page).cached);
    Change(page, at(page).holders + 1, at(page).cached);
}

void PagePool::Release(int32_t page) {
    Change(page, at(page).holders - 1, at(page).cached);
}

void PagePool::SetCached(int32_t page, bool cached) {
    WEFT_CHECK(at(page).cached != cached);
    WEFT_CHECK(!cached || at(page).holders > 0);
    Change(page, at(page).holders, cached);
}

}  // namespace weft::engine

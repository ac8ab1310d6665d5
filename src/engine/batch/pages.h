// PagePool: counts the holders of each page of the KV cache, and lists the free pages.
//
// Any number of sequences, and the prefix cache, may hold a page. A page without holders is free. A
// page that only the cache holds is *idle*: the cache may give it up. A page is a number, the same
// on every rank; the backend owns the bytes. Thread: one caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::engine {

class PagePool {
  public:
    explicit PagePool(int64_t pages);

    int64_t size() const { return static_cast<int64_t>(pages_.size()); }
    int64_t free() const { return static_cast<int64_t>(free_.size()); }
    int64_t idle() const { return idle_; }

    // Returns a free page, which the caller then holds. The pool must have a free page.
    int32_t Take();
    // Another holder of a page that is not free, and one holder less.
    void Hold(int32_t page);
    void Release(int32_t page);
    // The prefix cache adds or drops its reference to a page. It holds a page at most once, and
    // gets a page from a holder.
    void SetCached(int32_t page, bool cached);
    int holders(int32_t page) const { return at(page).holders; }
    // Whether one sequence holds the page, and nothing else does.
    bool has_one_holder(int32_t page) const { return at(page).holders == 1 && !at(page).cached; }

  private:
    struct Page {
        int32_t holders = 0;  // not counting the cache
        bool cached = false;
    };
    const Page& at(int32_t page) const;
    void Change(int32_t page, int32_t holders, bool cached);

    std::vector<Page> pages_;
    std::vector<int32_t> free_;  // Take() uses the last one first
    int64_t idle_ = 0;
};

}  // namespace weft::engine

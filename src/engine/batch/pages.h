// PagePool: which pages of the KV cache are free, and who holds the others.
//
// A page is held by any number of sequences, and by the prefix cache or not. It is free again when
// nobody holds it; it is *idle* when only the cache does: then the cache may give it up.
// Pages are numbers, the same on every rank; their bytes are the backend's. Thread: one caller.
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

    // A free page, held once by the caller. There must be one.
    int32_t Take();
    void Hold(int32_t page);
    void LetGo(int32_t page);
    // The prefix cache holds a page, or no longer. A page is cached once at most.
    void SetCached(int32_t page, bool cached);
    int holders(int32_t page) const { return pages_[static_cast<size_t>(page)].holders; }

  private:
    struct Page {
        int32_t holders = 0;  // without the cache
        bool cached = false;
    };
    Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }
    void Change(int32_t page, int32_t holders, bool cached);

    std::vector<Page> pages_;
    std::vector<int32_t> free_;  // the last one goes first
    int64_t idle_ = 0;
};

}  // namespace weft::engine

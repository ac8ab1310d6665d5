// FolderStore: the tier of PageStore in files, so that pages outlive the process.
//
// A page is the file FOLDER/KEY.page: a header (magic, format, CRC-32C, key, size), then its bytes.
// It is written under another name and renamed, so a killed process loses only the page that it
// writes. The CRC covers key, size and bytes. A file that is damaged, cut or foreign is removed and
// counts as absent. A thread writes the pages; while more than kQueueBytes wait for it, Put drops
// pages. If the disk is full, the store logs one warning, and tries again after kPauseNs.
//
// Any number of processes and hosts may share the folder, because no file is ever changed, and
// nothing waits for a lock. The modification time of a file is the time of its last use, or at most
// kRecentS before that. Whenever a process has written a 64th of the limit, it scans the whole
// folder; if the folder holds more than 15/16 of the limit, it removes the least recently used
// pages, of all processes, down to 7/8. So four processes that write at once stay within the limit.
// Other files in the folder do not matter. The folder and its files may be removed at any time; the
// next page creates the folder again. The process remembers which pages it has put or got, so that
// it need not read them from the device again. It forgets pages that others removed when it scans
// the folder, when it changes a page's time, and when it reads the page.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "engine/page_store/page_store.h"

namespace weft::engine {

class FolderStore final : public PageStore {
  public:
    static constexpr int64_t kQueueBytes = int64_t{256} << 20;  // (a larger page waits alone)
    static constexpr int64_t kPauseNs = 60'000'000'000;
    static constexpr int64_t kRecentS = 60;

    // Creates the folder for its user only. most_bytes: of all pages in the folder. Errors: kIo: it
    // cannot be written; kDenied: other users may write it, or this process may not.
    static Result<std::unique_ptr<FolderStore>> Open(const std::string& path, int64_t most_bytes);
    // Writes the pages that wait, for at most kFlushNs.
    ~FolderStore() override;

    bool Has(const PageKey& key) override;
    bool IsKept(const PageKey& key) override;
    void Put(const PageKey& key, const PageBytes& bytes) override;
    void Touch(const PageKey& key) override;
    bool Get(const PageKey& key, std::span<std::byte> out) override;
    PageStoreCounts counts() const override;
    // Number of pages for which IsKept returns true.
    size_t known() const;

  private:
    static constexpr int64_t kFlushNs = 10'000'000'000;
    // Times since 1970: of the last use, and as stored in the file (0: it is not written yet).
    struct Kept {
        int64_t used_ns = 0, stored_ns = 0;
        bool waits = false;  // in queue_
        PageBytes bytes{};   // to be written; null: only the time of the file is to be changed
    };
    struct Entry {
        PageKey key;
        int64_t bytes, used_ns;
    };
    FolderStore(std::string folder, int64_t most_bytes)
        : folder_(std::move(folder)), most_bytes_(most_bytes) {}
    std::string PathOf(const PageKey& key) const;
    void Write();
    int64_t NextUse();
    void Queue(const PageKey& key, Kept& kept);
    bool Renew(const PageKey& key, int64_t used_ns);
    void WriteOne(const PageKey& key, const Kept& kept);
    void NoteWritten(const PageKey& key, const Kept& written, int error);
    void Trim();
    int64_t List(std::vector<Entry>& entries) const;
    void Compare(std::vector<Entry>& entries);

    const std::string folder_;
    const int64_t most_bytes_;
    int64_t untrimmed_bytes_ = 0;  // since the last Trim; for the writing thread only
    bool warned_ = false;          // for the writing thread only

    mutable std::mutex mutex_;  // guards the following
    std::condition_variable changed_;
    std::deque<PageKey> queue_;
    int64_t queued_bytes_ = 0;      // of pages to be written, and of the page that is being written
    std::map<PageKey, Kept> kept_;  // pages that this process has put or got
    int64_t last_use_ns_ = 0;
    int64_t paused_until_ns_ = 0, flush_until_ns_ = 0;
    bool ends_ = false;
    PageStoreCounts counts_;
    std::thread writer_;
};

}  // namespace weft::engine

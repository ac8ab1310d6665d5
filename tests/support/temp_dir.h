// A fresh folder; the destructor removes it with its content.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/check.h"

namespace weft::test {

class TempDir {
  public:
    TempDir() {
        std::string name = (std::filesystem::temp_directory_path() / "weft-test-XXXXXX").string();
        WEFT_CHECK(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string operator/(const std::string& file) const { return path_ + "/" + file; }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace weft::test

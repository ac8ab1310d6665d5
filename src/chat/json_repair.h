// Repairs JSON that a model wrote, as it arrives, if the meaning is clear: unescaped line ends and
// tabs in strings, a backslash before a character that JSON does not escape, and then also the
// other backslashes of a Windows path (C:\work\new), a comma before a closing bracket or another
// comma, and Python's True, False and None. Valid JSON stays unchanged.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace weft::chat {

class JsonRepair {
  public:
    // Appends what is decided to `out`.
    void Take(char c, std::string& out);
    // Appends the rest of the text.
    void End(std::string& out);
    bool in_string() const { return in_string_; }

  private:
    bool TakeHeld(char c, std::string& out);
    bool TakeEscape(char c, std::string& out);
    bool TakePath(char c, std::string& out);
    void EndPath(bool goes_on, std::string& out);

    bool in_string_ = false;
    bool in_path_ = false;
    // Characters held until more arrive: the text behind the drive of a path, an escape in another
    // string, a word outside of strings, or a comma and the blanks behind it.
    std::string held_;
    std::array<char, 3> before_{};  // the last characters of the string
    int spaces_ = 0;                // of the path, since its last backslash
};

std::string Repaired(std::string_view text);

}  // namespace weft::chat

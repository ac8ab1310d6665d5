// Decodes a terminal's bytes to characters: assembles UTF-8, and separates pasted text from typed
// text. It uses no terminal and does not wait.
//
// Terminals in paste mode (kPasteModeOn) put pasted text between ESC [200~ and ESC [201~:
// https://invisible-island.net/xterm/ctlseqs/ctlseqs.html#h2-Bracketed-Paste-Mode
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace weft::cli {

constexpr const char* kPasteModeOn = "\033[?2004h";
constexpr const char* kPasteModeOff = "\033[?2004l";

class TerminalKeys {
  public:
    enum class Kind { kCharacter, kPasteBegins, kPasteEnds };
    struct Key {
        Kind kind = Kind::kCharacter;
        char32_t character = 0;
    };

    void Take(char byte);
    // Returns the next decoded key. Invalid UTF-8 becomes U+FFFD.
    std::optional<Key> Next();
    // Whether the last byte is Escape, which may begin a paste or be a key.
    bool escaped() const { return !pasting_ && marker_.size() == 1; }
    // Treats the bytes of an unfinished marker as keys.
    void Decide();
    // Whether the next bytes are pasted. Pasted lines end with '\n'. A paste ends at its marker or
    // at Ctrl-D, so the user can leave even if a terminal omits the marker.
    bool pasting() const { return pasting_; }

  private:
    void TakePlain(char byte);
    void BreakOff();  // handles an incomplete character
    void Add(char32_t character);

    std::string marker_;     // the part received so far
    std::string character_;  // bytes of a character
    bool pasting_ = false;
    bool after_return_ = false;  // in a paste: the '\n' of "\r\n" adds no line
    std::deque<Key> ready_;      // one-byte keys: at most a marker's length
};

}  // namespace weft::cli

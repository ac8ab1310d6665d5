// What a terminal sends, byte by byte, as characters: UTF-8 is put together, and texts that the
// user pastes are told from what is typed. No terminal, no waiting.
//
// Terminals that were asked to (kPasteModeOn) put a pasted text between ESC [200~ and ESC [201~:
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
    // What the bytes so far have given and was not returned yet. What is no UTF-8 is U+FFFD.
    std::optional<Key> Next();
    // Whether the last byte is Escape, which may begin a paste or be a key.
    bool escaped() const { return !pasting_ && marker_.size() == 1; }
    // What may begin a marker begins none.
    void Decide();
    // Whether what comes now is pasted. Its lines end with '\n'. A paste ends at its marker, and at
    // Ctrl-D, so that a terminal that forgets the marker keeps nobody from leaving.
    bool pasting() const { return pasting_; }

  private:
    void TakePlain(char byte);
    void BreakOff();  // a character that does not come whole
    void Add(char32_t character);

    std::string marker_;     // as far as it has come
    std::string character_;  // bytes of one
    bool pasting_ = false;
    bool after_return_ = false;  // of a paste: the '\n' of "\r\n" is no line of its own
    std::deque<Key> ready_;      // of one byte: at most a marker's length
};

}  // namespace weft::cli

// Stop strings in text that comes in pieces: what of it may go to the client now. Held back is only
// a tail that is the beginning of a stop string, so a client sees each word as soon as it cannot be
// part of one any more. The stop string itself is never delivered. Of several the one that is
// complete first counts, and of those that end together the longest: so the result depends on the
// text alone, not on how it was cut into pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wader {

class StopMatcher {
 public:
  // None may be empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes the next piece (whole UTF-8 characters) and gives the text that is now certain. A stop
  // string that ends in this piece but began in an earlier one counts from where it began. Nothing
  // comes any more once one is found.
  std::string push(std::string_view piece);
  bool found() const { return found_; }
  // The end of a run of text: what was held back. Text that comes later is another run.
  std::string flush();

 private:
  std::vector<std::string> stops_;
  size_t longest_ = 0;
  std::string held_;  // shorter than the longest stop string
  bool found_ = false;
};

}  // namespace wader

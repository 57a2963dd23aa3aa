// Unicode normal form C (Unicode Standard Annex 15).
#pragma once

#include <string>
#include <string_view>

namespace wader {

// True when `text` is certainly in NFC already: nothing in it is U+0300 or above.
bool is_trivially_nfc(std::string_view text);

// NFC of valid UTF-8. O(n log n) also for endless runs of combining marks, which utf8proc_map()
// would order in quadratic time.
std::string to_nfc(std::string_view text);

}  // namespace wader

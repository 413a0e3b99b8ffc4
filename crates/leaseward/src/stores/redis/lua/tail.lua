-- Every operation for itself: what fails, fails alone, and its error is its answer.
while at <= #ARGV do
  local letter = byte(ARGV[at])
  at = at + 1
  local before_n, ok, failure = n, nil, nil
  if letter == 97 or letter == 113 or letter == 65 or letter == 81 then
    ok, failure = pcall(ask, letter)
  elseif letter == 114 then
    ok, failure = pcall(release)
  elseif letter == 110 then
    ok, failure = pcall(renew)
  elseif letter == 109 then
    ok, failure = pcall(slow().ask_all)
  elseif letter == 108 then
    ok, failure = pcall(slow().look)
  else
    ok, failure = pcall(slow().break_lease)
  end
  if not ok then
    for i = before_n + 1, n do
      out[i] = nil
    end
    n = before_n
    answer(FAILED, type(failure) == 'table' and failure.err or tostring(failure))
  end
end

if is_ahead then
  call('SET', KEYS[1], text(last))
end
return out

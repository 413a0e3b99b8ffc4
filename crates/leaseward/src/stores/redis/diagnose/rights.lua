-- Which of these commands this user may not send: their numbers. Nothing is carried out. Each argument is a command,
-- a word a line.
if not redis.acl_check_cmd then
  return false
end
local refused = {}
for i, text in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(text, '[^\n]+') do
    words[#words + 1] = word
  end
  -- One that does not exist is an error.
  local ok, may = pcall(redis.acl_check_cmd, unpack(words))
  if not (ok and may) then
    refused[#refused + 1] = i
  end
end
return refused

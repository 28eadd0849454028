//! The functions that a query can call: their names and how many arguments they take.

macro_rules! functions {
    ($($function:ident $name:literal $least:literal $most:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Function { $($function,)* }

        const TABLE: &[(Function, &str, usize, usize)] =
            &[$((Function::$function, $name, $least, $most),)*];
    };
}

functions! {
    IsDefined "IS_DEFINED" 1 1,
    IsNull "IS_NULL" 1 1,
    IsBool "IS_BOOL" 1 1,
    IsNumber "IS_NUMBER" 1 1,
    IsFiniteNumber "IS_FINITE_NUMBER" 1 1,
    IsInteger "IS_INTEGER" 1 1,
    IsString "IS_STRING" 1 1,
    IsArray "IS_ARRAY" 1 1,
    IsObject "IS_OBJECT" 1 1,
    IsPrimitive "IS_PRIMITIVE" 1 1,
    Contains "CONTAINS" 2 3,
    StartsWith "STARTSWITH" 2 3,
    EndsWith "ENDSWITH" 2 3,
    StringEquals "STRINGEQUALS" 2 3,
    Lower "LOWER" 1 1,
    Upper "UPPER" 1 1,
    Length "LENGTH" 1 1,
    Substring "SUBSTRING" 2 3,
    Concat "CONCAT" 2 65_536,
    IndexOf "INDEX_OF" 2 3,
    Replace "REPLACE" 3 3,
    Replicate "REPLICATE" 2 2,
    Trim "TRIM" 1 1,
    TrimLeft "LTRIM" 1 1,
    TrimRight "RTRIM" 1 1,
    Left "LEFT" 2 2,
    Right "RIGHT" 2 2,
    Reverse "REVERSE" 1 1,
    ToString "TOSTRING" 1 1,
    StringToNumber "STRINGTONUMBER" 1 1,
    StringToBoolean "STRINGTOBOOLEAN" 1 1,
    StringToNull "STRINGTONULL" 1 1,
    Abs "ABS" 1 1,
    Ceiling "CEILING" 1 1,
    Floor "FLOOR" 1 1,
    Round "ROUND" 1 1,
    Truncate "TRUNC" 1 1,
    Sign "SIGN" 1 1,
    SquareRoot "SQRT" 1 1,
    Square "SQUARE" 1 1,
    Power "POWER" 2 2,
    Exp "EXP" 1 1,
    Log "LOG" 1 2,
    Log10 "LOG10" 1 1,
    Pi "PI" 0 0,
    Sin "SIN" 1 1,
    Cos "COS" 1 1,
    Tan "TAN" 1 1,
    Cot "COT" 1 1,
    Asin "ASIN" 1 1,
    Acos "ACOS" 1 1,
    Atan "ATAN" 1 1,
    Atan2 "ATN2" 2 2,
    Degrees "DEGREES" 1 1,
    Radians "RADIANS" 1 1,
    If "IIF" 3 3,
    ArrayContains "ARRAY_CONTAINS" 2 3,
    ArrayLength "ARRAY_LENGTH" 1 1,
    ArrayConcat "ARRAY_CONCAT" 2 65_536,
    ArraySlice "ARRAY_SLICE" 2 3,
    CurrentTimestamp "GetCurrentTimestamp" 0 0,
    CurrentDateTime "GetCurrentDateTime" 0 0,
    CurrentTicks "GetCurrentTicks" 0 0,
}

impl Function {
    pub(super) fn named(name: &str) -> Option<Self> {
        let mut known = TABLE.iter();
        let found = known.find(|(_, known, ..)| known.eq_ignore_ascii_case(name));
        found.map(|&(function, ..)| function)
    }

    pub(super) fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// How few and how many arguments it takes.
    pub(super) fn arguments(self) -> (usize, usize) {
        let (_, _, least, most) = TABLE[self as usize];
        (least, most)
    }

    pub(super) fn asks_the_time(self) -> bool {
        matches!(
            self,
            Self::CurrentTimestamp | Self::CurrentDateTime | Self::CurrentTicks
        )
    }
}
